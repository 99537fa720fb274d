#include "server/sandbox/privileges.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace trainyard::server {
namespace {

constexpr rlim_t kDescriptorsMax = 1024;
constexpr int kCapabilitiesMax = 64;  // the kernel has 41

Error not_limited(const char* what, int err) {
  return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE",
                    std::string(what) + ": " + std::strerror(err));
}

/// Lowers a limit; does not raise one that is lower already.
Status lower(int resource, const char* name, rlim_t value) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    return not_limited(name, errno);
  }
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    return not_limited(name, errno);
  }
  return {};
}

bool has_capability(const std::array<__user_cap_data_struct, 2>& data, int capability) {
  const uint32_t bit = uint32_t{1} << (capability % 32);
  return (data[static_cast<size_t>(capability / 32)].permitted & bit) != 0;
}

}  // namespace

Status limit_resources(const Sandbox& sandbox) {
  if (Status s = lower(RLIMIT_CORE, "RLIMIT_CORE", 0); !s.ok()) return s;
  if (Status s = lower(RLIMIT_NOFILE, "RLIMIT_NOFILE", kDescriptorsMax); !s.ok()) return s;
  if (Status s = lower(RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE", 0); !s.ok()) return s;
  if (sandbox.file_bytes > 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const auto bytes = static_cast<rlim_t>(sandbox.file_bytes);
    if (Status s = lower(RLIMIT_FSIZE, "RLIMIT_FSIZE", bytes); !s.ok()) return s;
  }
  if (sandbox.memory_bytes <= 0) return {};
  return lower(RLIMIT_DATA, "RLIMIT_DATA", static_cast<rlim_t>(sandbox.memory_bytes));
}

Status drop_capabilities(const Sandbox& sandbox) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return not_limited("capget", errno);
  const bool reads_all = !sandbox.sources.empty() && has_capability(data, CAP_DAC_READ_SEARCH);
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (has_capability(data, CAP_SETPCAP)) {
    for (int capability = 0; capability < kCapabilitiesMax; ++capability) {
      if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) continue;
      if (errno == EINVAL) break;  // beyond the kernel's last one
      return not_limited("PR_CAPBSET_DROP", errno);
    }
  }
  data = {};
  if (reads_all) {
    data[0].permitted = data[0].effective = uint32_t{1} << CAP_DAC_READ_SEARCH;
  }
  if (::syscall(SYS_capset, &header, data.data()) != 0) return not_limited("capset", errno);
  return {};
}

}  // namespace trainyard::server
