// client/cli/local_program.h: finds and runs the program trainyard-local.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/lib/connection.h"
#include "src/base/result.h"

namespace trainyard::cli {

inline constexpr const char* kLocalProgram = "trainyard-local";
/// The environment variable that gives trainyard-local the version of the trainyard that called it.
inline constexpr const char* kCallerVersion = "TRAINYARD_CALLER_VERSION";

/// Replaces this process by trainyard-local with the same arguments: the one in this program's own
/// folder, else the first in PATH. Returns only on failure, with the reason; `instead` describes an
/// alternative for the message, or is empty.
Error exec_local_program(const std::vector<std::string>& arguments, std::string_view instead,
                         const client::Environment& env);

/// Returns whether exec_local_program() would find the program.
bool has_local_program(const client::Environment& env);

/// Called in trainyard-local: refuses to work for a trainyard of another version, which PATH may
/// have combined.
Status check_caller(const client::Environment& env);

/// Copies standard input to a file in memory, so that it can be read again from its beginning.
/// Stops after more than `bytes_max` bytes, which the readers then refuse.
Status keep_standard_input(int64_t bytes_max);

}  // namespace trainyard::cli
