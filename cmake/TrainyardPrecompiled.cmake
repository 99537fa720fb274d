# Optimization levels of a release build, and precompiled headers of the standard library and of third parties. Without them
# half of a clean build is parsing the same headers repeatedly, and a fifth is optimizing code whose speed does not matter.
# One target compiles a set of headers, and others reuse it. GCC requires the same level for both, so a name stands for a set
# and a level:
#   kernels   -O3  the same as `standard`, except in debug builds
#   standard  -O3  the standard library                                     trainyard_precompiled_standard
#   cold      -O1  and JSON, for code that runs once per job                trainyard_precompiled_cold
#   wire      -Og  and JSON, Protobuf's messages and gRPC with its stubs    trainyard_wire_headers
#   tests     -O0  the standard library and GoogleTest                      trainyard_test_main
#   service_tests  the same, JSON, messages and gRPC with its stubs         trainyard_service_test_headers
# Each file still includes all headers that it uses, so that TRAINYARD_PRECOMPILED=OFF builds, too.
option(TRAINYARD_PRECOMPILED "Parse common headers once (precompiled headers)" ON)

# A unity build compiles up to 36 files as one. The compiler instantiates and optimizes the templates that they share only
# once, which halves the time of a clean build. After a change, all files of the unit are compiled again.
option(TRAINYARD_UNITY "Compile the files of a library together, up to 36 at once" OFF)

# trainyard_units(OUT NAME FILES...): sets OUT to FILES or, with TRAINYARD_UNITY, to the units NAME_0.cc, NAME_1.cc ... that
# include them. They include by paths relative to the project, so that all checkouts share the compiler cache.
function(trainyard_units out name)
  list(LENGTH ARGN count)
  if(NOT TRAINYARD_UNITY OR count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  math(EXPR units "(${count} + 35) / 36")
  math(EXPR size "(${count} + ${units} - 1) / ${units}")  # units of equal size keep all cores busy to the end
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

# Sets the optimization level of a target with these settings. The flag comes after the configuration's own level (-O3; a
# preset's -O0 or -O1), so it overrides that. In debug builds kernels have -O2, because tests run whole models there, too.
function(trainyard_level target settings)
  set(level_cold -O1)
  set(level_wire -Og)
  set(level_tests -O0)
  set(level_service_tests -O0)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level_${settings}}>)
  if(settings MATCHES "wire|tests")  # targets that link gRPC have this flag, and all users of a header need the same flags
    target_compile_options(${target} PRIVATE -pthread)
  endif()
  if(settings STREQUAL "kernels")
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O2>)
  endif()
endfunction()

# trainyard_precompile(TARGET SETTINGS HEADERS...): gives the target these settings and makes it compile their headers.
function(trainyard_precompile target settings)
  trainyard_level(${target} ${settings})
  if(TRAINYARD_PRECOMPILED)
    list(TRANSFORM ARGN REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # ccache needs these flags to detect which headers a precompiled header was built from.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
      "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# trainyard_settings(TARGET SETTINGS): gives the target these settings and reuses their headers, which another target compiles.
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
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # the flag of the header's owner; not -fPIE
  endif()
endfunction()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "")  # a target needs at least one source
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
