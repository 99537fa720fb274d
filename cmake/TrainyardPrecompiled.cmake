# How hard a release build optimizes what, and which headers of others are parsed once for many: half of a clean build was
# reading the same headers again, a fifth was optimising code whose time nobody notices. One target compiles a set of
# headers, others reuse it; GCC wants the same level for both, so a set and a level are one name:
#   kernels   -O3  no set: kernels include little
#   standard  -O3  the standard library                                trainyard_precompiled_standard
#   cold      -O1  and JSON, for what is done once for a job           trainyard_precompiled_cold
#   messages  -O1  and JSON and Protobuf's messages of the wire        trainyard_proto
#   services  -O1  and JSON, messages and gRPC with its stubs          trainyard_rpc
#   tests     -O0  the standard library and GoogleTest                 trainyard_test_main
#   service_tests  the same, JSON, messages and gRPC with its stubs    trainyard_service_test_headers
# A file still includes all that it uses: TRAINYARD_PRECOMPILED=OFF builds the same.
option(TRAINYARD_PRECOMPILED "Parse common headers once (precompiled headers)" ON)

# Up to 24 files of a library compile as one: the compiler then instantiates and optimizes the templates that they share only
# once, which halves a clean build; after a change, the file's neighbors compile again. Kernels stay apart, so that their
# machine code is the same either way.
option(TRAINYARD_UNITY "Compile the files of a library together, up to 24 at once" OFF)
function(trainyard_unity target settings)
  set(tests "${PROJECT_SOURCE_DIR}/tests")
  cmake_path(IS_PREFIX tests "${CMAKE_CURRENT_SOURCE_DIR}" is_test)
  if(NOT TRAINYARD_UNITY OR is_test OR settings STREQUAL "kernels")
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR units "(${count} + 23) / 24")
  math(EXPR batch "(${count} + ${units} - 1) / ${units}")  # units of one size keep both cores busy to the end
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  # An anonymous namespace is its own file's here too, though the compiler sees it in an included one.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
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
  set(level_messages -O1)
  set(level_services -O1)
  set(level_tests -O0)
  set(level_service_tests -O0)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level_${settings}}>)
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

# trainyard_begin_anew(TARGET FILES...): the target's precompiled header is removed when one of these generated headers has
# changed. While GCC preprocesses a header of which there is a compiled form it takes that, so ccache would find the new one
# to be what the old one was.
function(trainyard_begin_anew target)
  if(NOT TRAINYARD_PRECOMPILED)
    return()
  endif()
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${target}_headers.stamp)
  add_custom_command(OUTPUT ${stamp} DEPENDS ${ARGN}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp} VERBATIM)
  target_sources(${target} PRIVATE ${stamp})
endfunction()

# trainyard_settings(TARGET SETTINGS): the target has these settings and uses their headers, which another compiles.
function(trainyard_settings target settings)
  set(owner_standard trainyard_precompiled_standard)
  set(owner_cold trainyard_precompiled_cold)
  set(owner_messages trainyard_proto)
  set(owner_services trainyard_rpc)
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
