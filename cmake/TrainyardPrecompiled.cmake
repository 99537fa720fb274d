# Headers of others that most files include, parsed once for many: half of the time of a clean build was spent reading
# them again. Each set is compiled by one target, and others reuse it.
#   standard  the standard library                                         trainyard_precompiled_standard
#   messages  and Protobuf's messages of the wire contract                 trainyard_proto
#   services  and gRPC with its stubs                                      trainyard_rpc
#   tests     the standard library and GoogleTest, for tests' settings     trainyard_test_main
#   none      for kernels, which include little
# A file still includes all that it uses: TRAINYARD_PRECOMPILED=OFF builds the same.
option(TRAINYARD_PRECOMPILED "Parse common headers once (precompiled headers)" ON)

set(TRAINYARD_STANDARD_HEADERS
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstdio> <cstdlib>
  <cstring> <deque> <exception> <filesystem> <fstream> <functional> <initializer_list> <iterator> <limits> <map> <memory>
  <mutex> <new> <numeric> <optional> <set> <span> <sstream> <stdexcept> <stop_token> <string> <string_view> <thread>
  <tuple> <type_traits> <unordered_map> <unordered_set> <utility> <variant> <vector>)

# trainyard_precompile(TARGET HEADERS...): the target compiles these and uses them.
function(trainyard_precompile target)
  if(TRAINYARD_PRECOMPILED)
    list(TRANSFORM ARGN REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # ccache needs to see what a precompiled header was made of.
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
  endif()
endfunction()

# trainyard_precompiled(TARGET SET): the target uses a set that another compiles.
function(trainyard_precompiled target set)
  set(owner_standard trainyard_precompiled_standard)
  set(owner_messages trainyard_proto)
  set(owner_services trainyard_rpc)
  set(owner_tests trainyard_test_main)
  if(TRAINYARD_PRECOMPILED AND NOT set STREQUAL "none")
    target_precompile_headers(${target} REUSE_FROM ${owner_${set}})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # as the owners, also where -fPIE would do
  endif()
endfunction()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "")  # a target needs a source
add_library(trainyard_precompiled_standard OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
target_link_libraries(trainyard_precompiled_standard PUBLIC trainyard_options PRIVATE trainyard_warnings)
trainyard_precompile(trainyard_precompiled_standard ${TRAINYARD_STANDARD_HEADERS})
