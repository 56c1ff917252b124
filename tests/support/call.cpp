// SPDX-License-Identifier: MIT
#include "call.h"

#include <algorithm>

namespace cuflash::test {
namespace {

constexpr auto kWorkspaceRedZone = static_cast<std::byte>(0xA5);

}  // namespace

std::vector<Kernel> kernels_of(Op op, cuflashDevice_t device) {
  std::vector<Kernel> kernels;
  for (int32_t index = 0; index < cuflashGetKernelCount(); ++index) {
    cuflashKernelInfo_t info = {};
    info.struct_size = sizeof(info);
    if (cuflashGetKernelInfo(index, &info) != CUFLASH_STATUS_SUCCESS) continue;
    if (info.operation == static_cast<cuflashOperation_t>(op) && info.device == device) {
      kernels.push_back({op, info.name, info.dtypes});
    }
  }
  return kernels;
}

Call::Call(const Scenario& scenario, const Addresses& addresses, cuflashDevice_t device, const char* kernel)
    : op(scenario.c.op), forward(), backward() {
  if (op == Op::kForward) {
    forward = forward_params(scenario, addresses, device);
    forward.kernel = kernel;
  } else {
    backward = backward_params(scenario, addresses, device);
    backward.kernel = kernel;
  }
}

cuflashStatus_t Call::workspace_size(size_t* bytes) const {
  return op == Op::kForward ? cuflashForwardGetWorkspaceSize(&forward, bytes)
                            : cuflashBackwardGetWorkspaceSize(&backward, bytes);
}

cuflashStatus_t Call::preload() const {
  return op == Op::kForward ? cuflashForwardPreload(&forward) : cuflashBackwardPreload(&backward);
}

cuflashStatus_t Call::run(void* workspace, size_t workspace_bytes, cuflashStream_t stream) const {
  return op == Op::kForward ? cuflashForward(&forward, workspace, workspace_bytes, stream)
                            : cuflashBackward(&backward, workspace, workspace_bytes, stream);
}

Execution::Execution(const Scenario& scenario, const char* kernel, Memory& memory, Placement placement)
    : scenario_(scenario),
      memory_(memory),
      placement_(placement),
      addresses_(place()),
      call_(scenario, addresses_, target().device(), kernel),
      accepted_(call_.workspace_size(&workspace_bytes_)) {
  if (accepted_ != CUFLASH_STATUS_SUCCESS) return;
  reset(scenario.image);
  reserve_workspace();
}

Addresses Execution::place() {
  if (placement_ == Placement::kGuarded) {
    image_ = memory_.reserve(scenario_.image.size());
    return addresses_in(scenario_.geometry, image_);
  }
  Addresses addresses{};
  for (size_t i = 0; i < kNumBuffers; ++i) {
    const size_t bytes = scenario_.geometry.segments[i].bytes;
    if (bytes != 0) addresses[i] = memory_.reserve(bytes);
  }
  return addresses;
}

void Execution::reserve_workspace() {
  if (placement_ == Placement::kExact) {
    if (workspace_bytes_ != 0) workspace_ = memory_.reserve(workspace_bytes_);
    return;
  }
  std::vector<std::byte> content(workspace_bytes_ + 2 * kRedZoneBytes, kWorkspaceRedZone);
  std::fill_n(content.begin() + kRedZoneBytes, workspace_bytes_, static_cast<std::byte>(scenario_.poison()));
  std::byte* data = memory_.reserve(content.size());
  memory_.write(data, content.data(), content.size());
  memory_.finish();
  workspace_ = data + kRedZoneBytes;
}

cuflashStatus_t Execution::run(cuflashStream_t stream) { return call_.run(workspace_, workspace_bytes_, stream); }

void Execution::reset(const std::vector<std::byte>& image) {
  if (placement_ == Placement::kGuarded) {
    memory_.write(image_, image.data(), image.size());
  } else {
    for (size_t i = 0; i < kNumBuffers; ++i) {
      const Segment& segment = scenario_.geometry.segments[i];
      if (segment.bytes != 0) memory_.write(addresses_[i], image.data() + segment.offset, segment.bytes);
    }
  }
  memory_.finish();
}

std::vector<std::byte> Execution::read() {
  std::vector<std::byte> image(scenario_.image.size());
  if (placement_ == Placement::kGuarded) {
    memory_.read(image.data(), image_, image.size());
  } else {
    image = scenario_.image;
    for (size_t i = 0; i < kNumBuffers; ++i) {
      const Segment& segment = scenario_.geometry.segments[i];
      if (segment.bytes != 0) memory_.read(image.data() + segment.offset, addresses_[i], segment.bytes);
    }
  }
  memory_.finish();
  return image;
}

void Execution::read(Buffer buffer, std::vector<std::byte>* content) {
  content->resize(scenario_.geometry.segment(buffer).bytes);
  if (!content->empty()) memory_.read(content->data(), addresses_[static_cast<size_t>(buffer)], content->size());
  memory_.finish();
}

std::string Execution::check_workspace() {
  if (placement_ == Placement::kExact) return "";
  std::vector<std::byte> before(kRedZoneBytes), after(kRedZoneBytes);
  memory_.read(before.data(), workspace_ - kRedZoneBytes, kRedZoneBytes);
  memory_.read(after.data(), workspace_ + workspace_bytes_, kRedZoneBytes);
  memory_.finish();
  const auto intact = [](std::byte value) { return value == kWorkspaceRedZone; };
  if (!std::all_of(before.begin(), before.end(), intact)) return "wrote before the workspace";
  if (!std::all_of(after.begin(), after.end(), intact)) return "wrote behind the workspace";
  return "";
}

}  // namespace cuflash::test
