// SPDX-License-Identifier: MIT
// The elements of q, k, v and dout by distribution. Values are shaped so that the scores, not the elements, have the
// wanted size: whatever scale a case has, its scores are those that case.h names.
#pragma once

#include "case.h"
#include "random.h"

namespace cuflash::test {

// Where an element stands: row `row` of the `rows` of its entry, element `element` of the row.
struct Place {
  int32_t row;
  int32_t rows;
  int32_t element;
};

class Values {
 public:
  // scale: what the call multiplies q . k by.
  Values(const Case& c, float scale);

  float query(Random& random, const Place& at) const;
  float key(Random& random, const Place& at) const;
  float value(Random& random, const Place& at) const;
  float dout(Random& random) const;

 private:
  // Factors of random elements.
  struct Factors {
    float q = 1.0f;
    float k = 1.0f;
    float v = 1.0f;
    float dout = 1.0f;
  };
  static Factors factors_of(const Case& c, float scale);

  float draw(Random& random) const;
  float shaped(float factor, Random& random) const;
  float large(Random& random, int32_t element, bool signed_first) const;
  float first_of_key(const Place& at) const;
  bool has_steps() const;

  const Case& c_;
  float scale_;
  Factors factors_;
};

}  // namespace cuflash::test
