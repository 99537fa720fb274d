#include "client/cli/local_program.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "src/base/handle.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

/// Searches `folder`, then the folders of `search` (PATH). Empty if the program is in none of them.
fs::path find_local_program(const fs::path& folder, std::string_view search) {
  if (const fs::path beside = folder / kLocalProgram; is_program(beside)) return beside;
  for (size_t at = 0; at <= search.size();) {
    const size_t end = std::min(search.find(':', at), search.size());
    const fs::path file = fs::path(search.substr(at, end - at)) / kLocalProgram;
    if (file.is_absolute() && is_program(file)) return file;
    at = end + 1;
  }
  return {};
}

fs::path own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::string or_instead(std::string_view instead) {
  return instead.empty() ? "" : "; " + std::string(instead);
}

Error system_failure(const std::string& what) {
  return make_error(ErrorCode::kInternal, "LOCAL_PROGRAM_FAILED",
                    what + ": " + std::strerror(errno));
}

}  // namespace

bool has_local_program(const client::Environment& env) {
  return !find_local_program(own_folder(), env("PATH")).empty();
}

Error exec_local_program(const std::vector<std::string>& arguments, std::string_view instead,
                         const client::Environment& env) {
  const fs::path folder = own_folder();
  const fs::path program = find_local_program(folder, env("PATH"));
  if (program.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "LOCAL_PROGRAM_MISSING",
                      "trainyard-local is neither in " + folder.string() +
                          " nor in PATH. 'local run', 'local check', plans made here and PNG files "
                          "of curves need this program; the Debian package trainyard and the "
                          "tarball have it" +
                          or_instead(instead));
  }
  std::vector<std::string> words = {kLocalProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::setenv(kCallerVersion, TRAINYARD_VERSION, 1);
  ::execv(program.c_str(), argv.data());
  return system_failure(program.string() + " cannot be started");
}

Status check_caller(const client::Environment& env) {
  const std::string caller = env(kCallerVersion);
  if (caller.empty() || caller == TRAINYARD_VERSION) return {};
  return make_error(ErrorCode::kFailedPrecondition, "LOCAL_PROGRAM_DIFFERS",
                    "trainyard " + caller +
                        " found trainyard-local " TRAINYARD_VERSION
                        " in PATH; install both in one version");
}

Status keep_standard_input(int64_t bytes_max) {
  UniqueFd memory(::memfd_create("stdin", 0));
  if (!memory) return system_failure("a file in memory");
  char buffer[65536];
  for (int64_t kept = 0; kept <= bytes_max;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("standard input cannot be read");
    if (count == 0) break;
    if (::write(memory.get(), buffer, static_cast<size_t>(count)) != count) {
      return system_failure("a file in memory cannot be written");
    }
    kept += count;
  }
  ::lseek(memory.get(), 0, SEEK_SET);
  if (::dup2(memory.get(), STDIN_FILENO) < 0) return system_failure("standard input");
  return {};
}

}  // namespace trainyard::cli
