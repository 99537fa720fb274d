# How hard a release build optimizes what, and which headers of others are parsed once for many: half of a clean build was
# reading the same headers again, a fifth was optimising code whose time nobody notices. One target compiles a set of
# headers, others reuse it; GCC wants the same level for both, so a set and a level are one name:
#   kernels   -O3  the same as `standard`, but for debug builds
#   standard  -O3  the standard library                                     trainyard_precompiled_standard
#   cold      -O1  and JSON, for what is done once for a job                trainyard_precompiled_cold
#   wire      -Og  and JSON, Protobuf's messages and gRPC with its stubs    trainyard_wire_headers
#   tests     -O0  the standard library and GoogleTest                      trainyard_test_main
#   service_tests  the same, JSON, messages and gRPC with its stubs         trainyard_service_test_headers
# A file still includes all that it uses: TRAINYARD_PRECOMPILED=OFF builds the same.
option(TRAINYARD_PRECOMPILED "Parse common headers once (precompiled headers)" ON)

# Up to 36 files compile as one: the compiler then instantiates and optimizes the templates that they share only once, which
# halves a clean build; after a change, the file's neighbors compile again.
option(TRAINYARD_UNITY "Compile the files of a library together, up to 36 at once" OFF)

# trainyard_units(OUT NAME FILES...): OUT is the list of FILES or, with TRAINYARD_UNITY, of the units NAME_0.cc, NAME_1.cc ...
# that include them by their paths in the project, so that the compiler's cache serves every checkout.
function(trainyard_units out name)
  list(LENGTH ARGN count)
  if(NOT TRAINYARD_UNITY OR count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  math(EXPR units "(${count} + 35) / 36")
  math(EXPR size "(${count} + ${units} - 1) / ${units}")  # units of one size keep both cores busy to the end
  set(result)
  set(begin 0)
  while(begin LESS count)
    list(SUBLIST ARGN ${begin} ${size} files)
    set(text)
    foreach(file IN LISTS files)
      cmake_path(ABSOLUTE_PATH file)
      cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      string(APPEND text "#include \"${file}\"\n")
    endforeach()
    math(EXPR unit "${begin} / ${size}")
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_${unit}.cc CONTENT "${text}")
    list(APPEND result ${CMAKE_CURRENT_BINARY_DIR}/${name}_${unit}.cc)
    math(EXPR begin "${begin} + ${size}")
  endwhile()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

set(TRAINYARD_STANDARD_HEADERS
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstdio> <cstdlib>
  <cstring> <deque> <exception> <filesystem> <fstream> <functional> <initializer_list> <iterator> <limits> <map> <memory>
  <mutex> <new> <numeric> <optional> <set> <span> <sstream> <stdexcept> <stop_token> <string> <string_view> <thread>
  <tuple> <type_traits> <unordered_map> <unordered_set> <utility> <variant> <vector>)

# The level of a target with these settings. The configuration's own level (-O3; a preset's -O0 or -O1) stands in front,
# so the last one counts. Where the rest has -O0, kernels keep -O2: whole models are run there too.
function(trainyard_level target settings)
  set(level_cold -O1)
  set(level_wire -Og)
  set(level_tests -O0)
  set(level_service_tests -O0)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level_${settings}}>)
  if(settings MATCHES "wire|tests")  # gRPC's users have this flag, and a header is reused with the same flags alone
    target_compile_options(${target} PRIVATE -pthread)
  endif()
  if(settings STREQUAL "kernels")
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O2>)
  endif()
endfunction()

# trainyard_precompile(TARGET SETTINGS HEADERS...): the target has these settings and compiles their headers.
function(trainyard_precompile target settings)
  trainyard_level(${target} ${settings})
  if(TRAINYARD_PRECOMPILED)
    list(TRANSFORM ARGN REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # ccache needs to see what a precompiled header was made of.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
      "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# trainyard_settings(TARGET SETTINGS): the target has these settings and uses their headers, which another compiles.
function(trainyard_settings target settings)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(owner_kernels trainyard_precompiled_standard)
  endif()
  set(owner_standard trainyard_precompiled_standard)
  set(owner_cold trainyard_precompiled_cold)
  set(owner_wire trainyard_wire_headers)
  set(owner_tests trainyard_test_main)
  set(owner_service_tests trainyard_service_test_headers)
  trainyard_level(${target} ${settings})
  if(TRAINYARD_PRECOMPILED AND owner_${settings})
    target_precompile_headers(${target} REUSE_FROM ${owner_${settings}})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # as the owners, also where -fPIE would do
  endif()
endfunction()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "")  # a target needs a source
foreach(settings IN ITEMS standard cold)
  set(target trainyard_precompiled_${settings})
  add_library(${target} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${target} PUBLIC trainyard_options PRIVATE trainyard_warnings)
  set(json)
  if(settings STREQUAL "cold")
    set(json <nlohmann/json.hpp>)
  endif()
  trainyard_precompile(${target} ${settings} ${TRAINYARD_STANDARD_HEADERS} ${json})
endforeach()
