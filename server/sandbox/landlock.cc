#include "server/sandbox/landlock.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/handle.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

// The kernel's numbers, for which the headers of the system that builds this may be too old.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr unsigned kVersionFlag = 1;
constexpr unsigned kRulePathBeneath = 1;

enum Access : uint64_t {
  kExecute = 1 << 0,
  kWriteFile = 1 << 1,
  kReadFile = 1 << 2,
  kReadFolder = 1 << 3,
  kRemoveFolder = 1 << 4,
  kRemoveFile = 1 << 5,
  kMakeFolder = 1 << 7,
  kMakeFile = 1 << 8,
  kMoveBetweenFolders = 1 << 13,  // ABI 2
  kTruncate = 1 << 14,            // ABI 3
  kDeviceIoctl = 1 << 15,         // ABI 5
};
// Includes those that are never granted: links, sockets, pipes and devices.
constexpr uint64_t kAllOfAbi2 = (kMoveBetweenFolders << 1) - 1;
constexpr uint64_t kTcp = 3;     // ABI 4: bind and connect
constexpr uint64_t kScopes = 3;  // ABI 6: abstract sockets and signals of other processes

constexpr uint64_t kRead = kReadFile | kReadFolder;
constexpr uint64_t kWrite = kRead | kWriteFile | kRemoveFolder | kRemoveFile | kMakeFolder |
                            kMakeFile | kMoveBetweenFolders | kTruncate;
constexpr uint64_t kOfAFile = kExecute | kWriteFile | kReadFile | kTruncate | kDeviceIoctl;

struct Ruleset {
  uint64_t files = 0;
  uint64_t tcp = 0;
  uint64_t scopes = 0;
};

struct [[gnu::packed]] PathRule {
  uint64_t allowed = 0;
  int32_t folder = -1;
};

// What programs and libraries read while they run: code, time zones, the machine's cores and
// memory. Nothing here is secret; /etc as a whole is not here.
constexpr std::array kSystemFiles = {
    "/usr/lib",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl/openssl.cnf",
    "/usr/share/zoneinfo",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/dev/urandom",
};

Error not_restricted(const std::string& what, int err) {
  return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE",
                    "Landlock: " + what + ": " + std::strerror(err));
}

uint64_t handled_of(int abi) {
  uint64_t handled = kAllOfAbi2;
  if (abi >= 3) handled |= kTruncate;
  if (abi >= 5) handled |= kDeviceIoctl;
  return handled;
}

int open_path(const fs::path& path, bool follows_links) {
  if (follows_links) return ::open(path.c_str(), O_PATH | O_CLOEXEC);
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how));
}

class Rules {
 public:
  Rules(int ruleset, uint64_t handled) : ruleset_(ruleset), handled_(handled) {}

  /// Allows `access` to a file or to everything in a folder.
  Status allow(const fs::path& path, uint64_t access, bool must_exist,
               bool follows_links = true) const {
    const UniqueFd at(open_path(path, follows_links));
    if (!at) {
      return must_exist ? Status(not_restricted("cannot open " + path.string(), errno)) : Status();
    }
    struct stat st {};
    if (::fstat(at.get(), &st) != 0) return not_restricted("fstat " + path.string(), errno);
    if (!S_ISDIR(st.st_mode)) access &= kOfAFile;
    const PathRule rule{access & handled_, at.get()};
    if (::syscall(kAddRule, ruleset_, kRulePathBeneath, &rule, 0) != 0) {
      return not_restricted("cannot allow " + path.string(), errno);
    }
    return {};
  }

 private:
  const int ruleset_;
  const uint64_t handled_;
};

/// Allows to execute the program, and the loader that the kernel starts for it.
Status allow_program(const Rules& rules, const fs::path& program) {
  if (program.empty()) return {};
  if (Status s = rules.allow(program, kExecute | kReadFile, false); !s.ok()) return s;
  for (const char* loader : {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}) {
    if (Status s = rules.allow(loader, kExecute | kReadFile, false); !s.ok()) return s;
  }
  return {};
}

Status allow_all(const Rules& rules, const Sandbox& sandbox) {
  for (const char* path : kSystemFiles) {
    if (Status s = rules.allow(path, kRead, false); !s.ok()) return s;
  }
  if (Status s = rules.allow("/dev/null", kReadFile | kWriteFile, false); !s.ok()) return s;
  for (const fs::path& path : sandbox.readable) {
    if (Status s = rules.allow(path, kRead, false); !s.ok()) return s;
  }
  for (const fs::path& path : sandbox.sources) {
    if (Status s = rules.allow(path, kRead, false, /*follows_links=*/false); !s.ok()) return s;
  }
  for (const fs::path& path : sandbox.writable) {
    if (Status s = rules.allow(path, kWrite, true); !s.ok()) return s;
  }
  return allow_program(rules, sandbox.program);
}

}  // namespace

int landlock_abi() {
  const long abi = ::syscall(kCreateRuleset, nullptr, 0, kVersionFlag);
  return abi > 0 ? static_cast<int>(abi) : 0;
}

Status restrict_files(const Sandbox& sandbox, int abi) {
  Ruleset ruleset{.files = handled_of(abi)};
  // An older kernel refuses a structure that is longer than its own, unless the rest is zero.
  if (abi >= 4) ruleset.tcp = kTcp;
  if (abi >= 6) ruleset.scopes = kScopes;
  const UniqueFd fd(static_cast<int>(::syscall(kCreateRuleset, &ruleset, sizeof ruleset, 0)));
  if (!fd) return not_restricted("cannot create a ruleset", errno);
  if (Status s = allow_all(Rules(fd.get(), ruleset.files), sandbox); !s.ok()) return s;
  if (::syscall(kRestrictSelf, fd.get(), 0) != 0) {
    return not_restricted("cannot restrict the process", errno);
  }
  return {};
}

}  // namespace trainyard::server
