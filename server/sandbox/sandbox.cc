#include "server/sandbox/sandbox.h"

#include <sys/prctl.h>

#include <cerrno>
#include <cstring>

#include "server/sandbox/landlock.h"
#include "server/sandbox/privileges.h"
#include "server/sandbox/sealed_address.h"
#include "server/sandbox/system_calls.h"

namespace trainyard::server {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TRAINYARD_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRAINYARD_SANITIZED 1
#endif

/// A sanitizer maps terabytes, and at its end traces the process: no restriction allows that.
std::string sanitizer_of_build() {
#ifdef TRAINYARD_SANITIZED
  return "a sanitizer";
#else
  return "";
#endif
}

Error unavailable(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE", what);
}

bool restricts_files(const SandboxHost& host) {
  return host.landlock_abi >= kLandlockAbiMin && host.sanitizer.empty();
}

bool restricts_calls(const SandboxHost& host) {
  return host.filters_calls && host.sanitizer.empty();
}

}  // namespace

SandboxHost probe_sandbox_host() {
  SandboxHost host;
  host.landlock_abi = landlock_abi();
  host.filters_calls = can_filter_system_calls();
  host.seals_memory = can_seal_memory();
  host.sanitizer = sanitizer_of_build();
  return host;
}

std::vector<std::string> missing_restrictions(const SandboxHost& host) {
  if (!host.sanitizer.empty()) {
    return {"workers run without a sandbox, because this build has " + host.sanitizer};
  }
  std::vector<std::string> missing;
  if (host.landlock_abi == 0) {
    missing.emplace_back(
        "the kernel has no Landlock (Linux 5.19 or later, with landlock among its security "
        "modules), so a worker can read and write all files of the daemon's user");
  } else if (host.landlock_abi < kLandlockAbiMin) {
    missing.emplace_back(
        "the kernel has only ABI 1 of Landlock, which is not used; Linux 5.19 has ABI 2");
  }
  if (!host.filters_calls) {
    missing.emplace_back(
        "the kernel has no seccomp filters, so a worker can use the network and start programs");
  }
  return missing;
}

std::string describe(const SandboxHost& host) {
  if (!host.sanitizer.empty()) return "none, because this build has " + host.sanitizer;
  std::string text;
  if (restricts_files(host)) {
    text = "files (Landlock ABI " + std::to_string(host.landlock_abi) + "), ";
    if (host.landlock_abi >= 4) text += "TCP, ";
    if (host.landlock_abi >= 6) text += "abstract sockets and signals, ";
  }
  if (restricts_calls(host)) text += "system calls (seccomp), ";
  return text + "limits, no capabilities";
}

Status restrict_process(const Sandbox& sandbox, const SandboxHost& host) {
  if (sandbox.profile == SandboxProfile::kNone) return {};
  if (const std::vector<std::string> missing = missing_restrictions(host);
      sandbox.required && !missing.empty()) {
    return unavailable(missing.front());
  }
  if (!host.sanitizer.empty()) return {};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return unavailable(std::string("PR_SET_NO_NEW_PRIVS: ") + std::strerror(errno));
  }
  if (sandbox.profile == SandboxProfile::kTrain) (void)seal_address(sandbox.socket);
  if (Status s = limit_resources(sandbox); !s.ok()) return s;
  if (restricts_files(host)) {
    if (Status s = restrict_files(sandbox, host.landlock_abi); !s.ok()) return s;
  }
  return drop_capabilities(sandbox);
}

Status filter_system_calls(const Sandbox& sandbox, const SandboxHost& host) {
  if (sandbox.profile == SandboxProfile::kNone || !restricts_calls(host)) return {};
  return load_filter({sandbox.profile, !sandbox.program.empty(), sealed_address()});
}

}  // namespace trainyard::server
