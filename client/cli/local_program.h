// client/cli/local_program.h: the program trainyard-local, found and called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/lib/connection.h"
#include "src/base/result.h"

namespace trainyard::cli {

inline constexpr const char* kLocalProgram = "trainyard-local";
/// Of its environment: the version of the trainyard that called it.
inline constexpr const char* kCallerVersion = "TRAINYARD_CALLER_VERSION";

/// This process becomes trainyard-local, with the same arguments: the one in this program's own
/// folder, else the first in PATH. Returns only to say why it cannot; `instead` is another way to
/// the same end, or empty.
Error become_local_program(const std::vector<std::string>& arguments, std::string_view instead,
                           const client::Environment& env);

/// Two versions may meet by way of PATH. In trainyard-local: refuses to work for another one.
Status check_caller(const client::Environment& env);

/// Standard input as a file in memory, which can be read from its beginning again. Stops once it
/// has more than `bytes_max`, which a reader then refuses.
Status keep_standard_input(int64_t bytes_max);

}  // namespace trainyard::cli
