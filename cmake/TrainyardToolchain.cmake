# Compiler settings that all targets share, as two interface targets:
#   trainyard_options   language level and sanitizers; linked PUBLIC, because all objects must agree on them
#   trainyard_warnings  warnings; linked PRIVATE, so that users of a target do not inherit them
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the engine is linked into libtrainyard_cuda.so too
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The build tree has the layout of an installation, because programs find each other by relative paths: trainyardd expects
# trainyard-worker in its own folder, and both expect the CUDA module in ../lib/trainyard. Tests are not moved.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(TRAINYARD_MODULE_DIR ${PROJECT_BINARY_DIR}/lib/trainyard)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TRAINYARD_CCACHE ccache)
if(TRAINYARD_CCACHE)
  # Different builds (release, engine-only) and checkouts share cached objects, which requires paths relative to the base
  # folder. This sloppiness lets ccache also cache objects that use a precompiled header; the header's content is still
  # compared. In depend mode, ccache takes a file's list of headers from the compiler instead of preprocessing the file.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_DEPEND=1 CCACHE_INODECACHE=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TRAINYARD_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
find_program(TRAINYARD_MOLD mold)
if(TRAINYARD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(trainyard_options INTERFACE)
if(TRAINYARD_SANITIZE STREQUAL "address")
  target_compile_options(trainyard_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
  target_link_options(trainyard_options INTERFACE -fsanitize=address,undefined)
elseif(TRAINYARD_SANITIZE STREQUAL "thread")
  target_compile_options(trainyard_options INTERFACE -fsanitize=thread)
  target_link_options(trainyard_options INTERFACE -fsanitize=thread)
elseif(TRAINYARD_SANITIZE STREQUAL "fuzzer")  # clang's libFuzzer, for tests/fuzz
  target_compile_options(trainyard_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(trainyard_options INTERFACE -fsanitize=address,undefined)
elseif(NOT TRAINYARD_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TRAINYARD_SANITIZE is '${TRAINYARD_SANITIZE}', expected address, thread, fuzzer or empty")
endif()
target_include_directories(trainyard_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(trainyard_options INTERFACE TRAINYARD_VERSION="${PROJECT_VERSION}")

# GCC collects garbage only above this heap size, in KiB. Earlier collections take up to a fifth of the compile time.
target_compile_options(trainyard_options INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1500000>")

add_library(trainyard_warnings INTERFACE)
target_compile_options(trainyard_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 gives false warnings for "literal" + std::string (GCC bug 105651), and for copies inside of std::string if the
  # standard library is a precompiled header.
  target_compile_options(trainyard_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endif()
# For clang: checks the annotations of src/base/mutex.h, and does not warn about loops that only GCC vectorizes.
target_compile_options(trainyard_warnings INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Wno-pass-failed>)
if(TRAINYARD_WERROR)
  target_compile_options(trainyard_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

include(TrainyardPrecompiled)

# trainyard_library(NAME [APART] [SETTINGS NAME] SOURCES... [HOT SOURCES...]): defines a static library with the project's
# options and warnings, and with settings of TrainyardPrecompiled.cmake, by default `standard`. Sources after HOT contain
# numerical loops and are always compiled with -O3. With APART, the library is never compiled in unity units.
function(trainyard_library name)
  cmake_parse_arguments(ARG "APART" "SETTINGS" "HOT" ${ARGN})
  if(NOT ARG_SETTINGS)
    set(ARG_SETTINGS standard)
  endif()
  set(sources ${ARG_UNPARSED_ARGUMENTS})
  if(NOT ARG_APART)
    trainyard_units(sources ${name} ${sources})
  endif()
  trainyard_units(hot_sources ${name}_hot ${ARG_HOT})
  add_library(${name} STATIC ${sources} ${hot_sources})
  target_link_libraries(${name} PUBLIC trainyard_options PRIVATE trainyard_warnings)
  trainyard_settings(${name} ${ARG_SETTINGS})
  set_source_files_properties(${hot_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  if(TRAINYARD_UNITY)  # GCC warns about anonymous namespaces in included files, such as those of a unit
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
