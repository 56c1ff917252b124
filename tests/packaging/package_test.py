# SPDX-License-Identifier: MIT
"""Installs the build, moves the installation to another folder, and uses it as other projects would.

Run by ctest, which gives the folders and tools in the environment.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ["CUFLASH_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["CUFLASH_BINARY_DIR"])
CMAKE = os.environ["CMAKE"]
CPACK = os.environ["CPACK"]
CC = os.environ["CC"]
CXX = os.environ["CXX"]
NVCC_FOLDER = str(pathlib.Path(os.environ["CUDACXX"]).parent)

CPP_CONSUMER = HERE / "consumer" / "main.cpp"
C_CONSUMER = SOURCE / "examples" / "minimal.c"
EXPECTED_OUTPUT = {CPP_CONSUMER: "o = 3 30", C_CONSUMER: "row 127: 63.5"}
# Libraries that any Linux with a C++ program has; no CUDA library is among them.
ALLOWED_NEEDED = {
    "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    "libpthread.so.0", "libdl.so.2", "librt.so.1",
}  # fmt: skip
MIB = 1 << 20
MAX_LIBRARY_BYTES = 100 * MIB


def run(*command, env=None, cwd=None):
    """The output of a command that must succeed."""
    result = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd
    )
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nstatus {result.returncode}\n{result.stdout}")
    return result.stdout


def cache_value(name):
    found = re.search(rf"^{name}:\w+=(.*)$", (BINARY / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def environment_without_cuda():
    env = {k: v for k, v in os.environ.items() if k not in ("CUDACXX", "CUDA_HOME", "CUDA_PATH")}
    folders = env["PATH"].split(os.pathsep)
    env["PATH"] = os.pathsep.join(f for f in folders if not (pathlib.Path(f) / "nvcc").exists())
    return env


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cuflash-package-"))
        installed = cls.folder / "installed here"
        run(CMAKE, "--install", BINARY, "--prefix", installed)
        cls.prefix = cls.folder / "moved"
        installed.rename(cls.prefix)
        cls.libdir = cls.prefix / cache_value("CMAKE_INSTALL_LIBDIR")
        cls.library = cls.libdir / "libcuflash.so"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def work_folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def check_program(self, program, source, env=None):
        self.assertIn(EXPECTED_OUTPUT[source], run(program, env=env))

    # ---- What lies there -------------------------------------------------------------------------------------------

    def test_installed_files(self):
        found = {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*") if not p.is_dir()}
        lib = self.libdir.relative_to(self.prefix).as_posix()
        version = (SOURCE / "include/cuflash/cuflash.h").read_text()
        version = ".".join(re.findall(r"#define CUFLASH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", version))
        expected = {
            "include/cuflash/cuflash.h", f"{lib}/libcuflash.a", f"{lib}/libcuflash.so", f"{lib}/libcuflash.so.0",
            f"{lib}/libcuflash.so.{version}", f"{lib}/pkgconfig/cuflash.pc", f"{lib}/pkgconfig/cuflash-static.pc",
            f"{lib}/cmake/cuflash/cuflash-config.cmake", f"{lib}/cmake/cuflash/cuflash-config-version.cmake",
        }  # fmt: skip
        self.assertLessEqual(expected, found)
        self.assertTrue((self.libdir / "libcuflash.so.0").is_symlink())

    def test_no_build_paths_in_text_files(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in (".cmake", ".pc", ".h"):
                text = path.read_text()
                for folder in (SOURCE, BINARY, self.folder / "installed here"):
                    self.assertNotIn(str(folder), text, path)

    def test_dynamic_section(self):
        dynamic = run("readelf", "-d", self.library)
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libcuflash.so.0"])
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        self.assertLessEqual(needed, ALLOWED_NEEDED)
        self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH)\)")
        self.assertRegex(dynamic, r"BIND_NOW|FLAGS_1.*NOW")
        self.assertIn("GNU_RELRO", run("readelf", "-lW", self.library))

    def test_exported_symbols(self):
        symbols = re.findall(r"^\S+ [A-Z] (\S+)$", run("nm", "-D", "--defined-only", self.library), re.MULTILINE)
        functions = [s for s in symbols if not s.split("@")[0].startswith("CUFLASH_")]  # the version node is a symbol too
        self.assertIn("cuflashForward", {s.split("@")[0] for s in functions})
        for symbol in functions:
            self.assertRegex(symbol, r"^cuflash[A-Z]\w+@@\S+$")

    def test_every_declared_function_is_exported(self):
        header = (self.prefix / "include/cuflash/cuflash.h").read_text()
        declared = set(re.findall(r"CUFLASH_API[^;{]*?\b(cuflash[A-Z]\w+)\(", header))
        symbols = set(re.findall(r" T (cuflash\w+)", run("nm", "-D", "--defined-only", self.library)))
        self.assertEqual(declared, symbols)

    def test_size_budget(self):
        for path in (self.library, self.libdir / "libcuflash.a"):
            size = path.stat().st_size
            print(f"{path.name}: {size / MIB:.2f} MiB", end=" ", flush=True)
            self.assertLess(size, MAX_LIBRARY_BYTES)

    def test_header_in_each_language(self):
        source = '#include "cuflash/cuflash.h"\n'
        for compiler, language, standards in ((CC, "c", ("c99", "c11", "c17")), (CXX, "c++", ("c++17", "c++20"))):
            for standard in standards:
                command = [compiler, f"-x{language}", f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic",
                           "-Werror", "-I", self.prefix / "include", "-"]  # fmt: skip
                result = subprocess.run([str(c) for c in command], input=source, text=True, capture_output=True)
                self.assertEqual((result.returncode, result.stderr), (0, ""), standard)

    # ---- CMake -----------------------------------------------------------------------------------------------------

    def build_consumer(self, language, library, how="package", arguments=(), env=None):
        source = CPP_CONSUMER if language == "CXX" else C_CONSUMER
        build = self.work_folder()
        run(
            CMAKE, "-S", HERE / "consumer", "-B", build, "-G", "Ninja", f"-DCONSUMER_LANGUAGE={language}",
            f"-DCONSUMER_SOURCE={source}", f"-DLIBRARY={library}", f"-DHOW={how}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            *arguments, env=env,
        )  # fmt: skip
        run(CMAKE, "--build", build, env=env)
        self.check_program(build / "consumer", source, env)
        return build / "consumer"

    def test_find_package_shared_c_without_cuda_toolkit(self):
        self.build_consumer(
            "C", "shared", arguments=["-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"], env=environment_without_cuda()
        )

    def test_find_package_shared_cpp_without_cuda_toolkit(self):
        program = self.build_consumer(
            "CXX", "shared", arguments=["-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"], env=environment_without_cuda()
        )
        self.assertIn("libcuflash.so.0", run("readelf", "-d", program))

    def test_find_package_static_c(self):
        program = self.build_consumer("C", "static")
        self.assertNotIn("libcuflash", run("readelf", "-d", program))

    def test_find_package_static_cpp(self):
        program = self.build_consumer("CXX", "static")
        self.assertNotIn("libcuflash", run("readelf", "-d", program))

    def find_package(self, arguments):
        """(status, output) of configuring a project that only finds the package."""
        folder = self.work_folder()
        (folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.24)\nproject(x C)\nfind_package(cuflash {arguments})\n"
        )
        command = [CMAKE, "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return result.returncode, result.stdout

    def test_find_package_version_and_components(self):
        self.assertEqual(self.find_package("0.1 REQUIRED COMPONENTS shared static")[0], 0)
        self.assertNotEqual(self.find_package("0.2 REQUIRED")[0], 0)
        self.assertNotEqual(self.find_package("1 REQUIRED")[0], 0)
        status, output = self.find_package("REQUIRED COMPONENTS fast")
        self.assertNotEqual(status, 0)
        self.assertIn('cuflash has no component "fast"', output)

    def test_add_subdirectory(self):
        architectures = cache_value("CMAKE_CUDA_ARCHITECTURES").split(";")[-1]
        arguments = [f"-DCUFLASH_SOURCE={SOURCE}", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
                     "-DCMAKE_BUILD_TYPE=Release"]  # fmt: skip
        env = {**os.environ, "PATH": NVCC_FOLDER + os.pathsep + os.environ["PATH"]}
        program = self.build_consumer("CXX", "shared", "subdirectory", arguments, env)
        build = program.parent
        for unwanted in ("cuflash/tests", "cuflash/examples", "cuflash/benchmarks"):
            self.assertFalse((build / unwanted).exists(), unwanted)
        run(CMAKE, build, "-DLIBRARY=static", env=env)
        run(CMAKE, "--build", build, env=env)
        self.check_program(program, CPP_CONSUMER)
        self.assertNotIn("libcuflash", run("readelf", "-d", program))

    # ---- pkg-config ------------------------------------------------------------------------------------------------

    def pkg_config(self, *arguments):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.libdir / "pkgconfig")}
        return run("pkg-config", *arguments, env=env).split()

    def check_pkg_config(self, compiler, source, package):
        program = self.work_folder() / "program"
        flags = self.pkg_config("--cflags", "--libs", package)
        run(compiler, source, "-o", program, *flags)
        self.check_program(program, source, {**os.environ, "LD_LIBRARY_PATH": str(self.libdir)})
        return run("readelf", "-d", program)

    def test_pkg_config_shared(self):
        self.assertEqual(self.pkg_config("--libs", "cuflash")[-1], "-lcuflash")
        for compiler, source in ((CC, C_CONSUMER), (CXX, CPP_CONSUMER)):
            self.assertIn("libcuflash.so.0", self.check_pkg_config(compiler, source, "cuflash"))

    def test_pkg_config_static(self):
        for compiler, source in ((CC, C_CONSUMER), (CXX, CPP_CONSUMER)):
            self.assertNotIn("libcuflash", self.check_pkg_config(compiler, source, "cuflash-static"))

    def test_pkg_config_version(self):
        self.assertEqual(self.pkg_config("--modversion", "cuflash"), [cache_value("CMAKE_PROJECT_VERSION")])

    # ---- CPack -----------------------------------------------------------------------------------------------------

    def cpack(self, generator):
        folder = self.work_folder()
        run(CPACK, "-G", generator, "--config", BINARY / "CPackConfig.cmake", "-B", folder, cwd=folder)
        return sorted(p for p in folder.iterdir() if p.is_file())

    def test_archive(self):
        (archive,) = self.cpack("TGZ")
        names = tarfile.open(archive).getnames()
        for wanted in ("include/cuflash/cuflash.h", "libcuflash.so.0", "libcuflash.a", "cuflash-config.cmake", "cuflash.pc"):
            self.assertTrue(any(n.endswith(wanted) for n in names), wanted)

    @unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb is not installed: not a Debian system")
    def test_debian_packages(self):
        packages = {p.name.split("_")[0]: p for p in self.cpack("DEB")}
        self.assertEqual(sorted(packages), ["libcuflash-dev", "libcuflash0"])
        files = {name: run("dpkg-deb", "--contents", p) for name, p in packages.items()}
        self.assertIn("libcuflash.so.0", files["libcuflash0"])
        self.assertNotIn("cuflash.h", files["libcuflash0"])
        self.assertIn("include/cuflash/cuflash.h", files["libcuflash-dev"])
        self.assertIn("libcuflash0 (= ", run("dpkg-deb", "--field", packages["libcuflash-dev"], "Depends"))


if __name__ == "__main__":
    unittest.main()
