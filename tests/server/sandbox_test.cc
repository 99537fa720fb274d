// Tries to get out of the sandbox: each attempt runs in a process of its own, which enters the
// sandbox as a worker does, on this host and as if it had less.
#include "server/sandbox/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "server/sandbox/sealed_address.h"
#include "src/base/files.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr int kRefused = 0, kEscaped = 1, kNoSandbox = 2, kNotAlive = 3;
constexpr int64_t kMemoryMax = int64_t{256} << 20;
constexpr int64_t kFileMax = 1 << 20;

/// A state folder with a job's folder in which the sandbox may write, an input, and what it must
/// not reach; and sockets of other programs.
class Host {
 public:
  Host() {
    std::string pattern = (fs::temp_directory_path() / "sandbox.XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    for (const char* name : {"jobs/mine", "jobs/other", "uploads"}) {
      fs::create_directories(root_ / name);
    }
    for (const char* name : {"jobs/other/reports-1", "trainyard.db", "uploads/input"}) {
      std::ofstream(root_ / name) << "secret";
    }
    listen_at(tcp_, AF_INET);
    listen_at(abstract_, AF_UNIX);
    listen_at_path(client_, root_ / "trainyard.sock");
    listen_at_path(daemon_, root_ / "worker.sock");
  }
  ~Host() { fs::remove_all(root_); }
  Host(const Host&) = delete;

  fs::path path(const char* name) const { return root_ / name; }
  Sandbox sandbox(SandboxProfile profile) const {
    Sandbox sandbox;
    sandbox.profile = profile;
    sandbox.readable = {path("uploads/input")};
    sandbox.writable = {path("jobs/mine")};
    sandbox.socket = path("worker.sock");
    sandbox.memory_bytes = kMemoryMax;
    sandbox.file_bytes = kFileMax;
    return sandbox;
  }
  /// Connects by the system call itself, as an attacker would.
  static bool connects(const sockaddr* address, socklen_t bytes) {
    const UniqueFd fd(::socket(address->sa_family, SOCK_STREAM, 0));
    return fd && ::syscall(SYS_connect, fd.get(), address, bytes) == 0;
  }
  bool connects_tcp() const {
    return connects(reinterpret_cast<const sockaddr*>(&tcp_address_), sizeof tcp_address_);
  }
  bool connects_abstract() const {
    return connects(reinterpret_cast<const sockaddr*>(&abstract_address_), abstract_bytes_);
  }
  bool connects_to(const char* name) const {
    const sockaddr_un address = address_of(path(name));
    return connects(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

 private:
  static sockaddr_un address_of(const fs::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return address;
  }
  static void listen_at_path(UniqueFd& fd, const fs::path& path) {
    const sockaddr_un address = address_of(path);
    fd.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(fd.get(), 16), 0);
  }
  /// Listens at a TCP port, or an abstract address, that the kernel chooses.
  void listen_at(UniqueFd& fd, sa_family_t family) {
    sockaddr_storage address{};
    address.ss_family = family;
    socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sa_family_t);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    fd.reset(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    ASSERT_EQ(::listen(fd.get(), 64), 0);
    bytes = sizeof address;
    ASSERT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    if (family == AF_INET) {
      std::memcpy(&tcp_address_, &address, sizeof tcp_address_);
    } else {
      std::memcpy(&abstract_address_, &address, sizeof abstract_address_);
      abstract_bytes_ = bytes;
    }
  }

  fs::path root_;
  UniqueFd tcp_, abstract_, client_, daemon_;
  sockaddr_in tcp_address_{};
  sockaddr_un abstract_address_{};
  socklen_t abstract_bytes_ = 0;
};

/// Runs `attempt` in a process in the sandbox. Returns kEscaped if it returns true.
int run_in(const Sandbox& sandbox, const SandboxHost& host, const std::function<bool()>& attempt) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!restrict_process(sandbox, host).ok() || !filter_system_calls(sandbox, host).ok()) {
      ::_exit(kNoSandbox);
    }
    ::_exit(attempt() ? kEscaped : kRefused);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kNotAlive;
  return WEXITSTATUS(status);
}

/// What stops an attempt: any one of them suffices.
enum Means : uint8_t { kFiles = 1, kCalls = 2, kLimits = 4 };

struct Attempt {
  const char* name;
  unsigned means;
  std::function<bool(const Host&)> run;
  int abi_min = kLandlockAbiMin;  // of Landlock, if kFiles stops it
};

bool opens(const fs::path& path, int flags) {
  return UniqueFd(::open(path.c_str(), flags, 0600)).get() >= 0;
}

bool reads(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY));
  char byte = 0;
  return fd && ::read(fd.get(), &byte, 1) == 1;
}

bool starts_shell() {
  const pid_t pid = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) {
    ::execl("/bin/sh", "sh", "-c", "exit 0", nullptr);
    ::_exit(1);
  }
  int status = 1;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
}

bool raises_limits() {
  const rlimit more{RLIM_INFINITY, RLIM_INFINITY};
  return ::setrlimit(RLIMIT_DATA, &more) == 0 || ::setrlimit(RLIMIT_CORE, &more) == 0;
}

bool allocates_beyond_limit() {
  constexpr size_t kTooMuch = static_cast<size_t>(kMemoryMax) * 2;
  return ::mmap(nullptr, kTooMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
         MAP_FAILED;
}

bool shares_memory() {
  return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) !=
         MAP_FAILED;
}

bool writes_a_large_file(const Host& host) {
  const UniqueFd fd(::open(host.path("jobs/mine/large").c_str(), O_WRONLY | O_CREAT, 0600));
  return fd && ::ftruncate(fd.get(), kFileMax + 1) == 0;
}

const std::vector<Attempt>& attempts() {
  static const pid_t daemon = ::getpid();
  static const std::vector<Attempt> all = {
      {"WritesOutside", kFiles,
       [](const Host& h) { return opens(h.path("x"), O_WRONLY | O_CREAT); }},
      {"WritesItsInput", kFiles,
       [](const Host& h) { return opens(h.path("uploads/input"), O_RDWR); }},
      {"ReadsAnotherJob", kFiles,
       [](const Host& h) { return reads(h.path("jobs/other/reports-1")); }},
      {"ReadsTheStore", kFiles, [](const Host& h) { return reads(h.path("trainyard.db")); }},
      {"ReadsShadow", kFiles, [](const Host&) { return reads("/etc/shadow"); }},
      {"ListsTheStateFolder", kFiles, [](const Host& h) { return opens(h.path(""), O_RDONLY); }},
      {"MovesAnInputAway", kFiles,
       [](const Host& h) {
         return ::rename(h.path("uploads/input").c_str(), h.path("jobs/mine/x").c_str()) == 0;
       }},
      {"RemovesAnotherJob", kFiles,
       [](const Host& h) { return ::unlink(h.path("jobs/other/reports-1").c_str()) == 0; }},
      {"LinksTheStore", kFiles | kCalls,
       [](const Host& h) {
         return ::link(h.path("trainyard.db").c_str(), h.path("jobs/mine/x").c_str()) == 0;
       }},
      {"MakesASymbolicLink", kFiles | kCalls,
       [](const Host& h) { return ::symlink("/etc/shadow", h.path("jobs/mine/l").c_str()) == 0; }},
      {"CutsTheStore", kFiles | kCalls,
       [](const Host& h) { return ::truncate(h.path("trainyard.db").c_str(), 0) == 0; }, 3},
      {"ChangesModes", kCalls,
       [](const Host& h) { return ::chmod(h.path("trainyard.db").c_str(), 0666) == 0; }},
      {"ReadsTheDaemonsMemory", kFiles,
       [](const Host&) { return reads("/proc/" + std::to_string(daemon) + "/maps"); }},
      {"OpensMemoryOfInit", kFiles, [](const Host&) { return opens("/proc/1/mem", O_RDWR); }},
      {"ConnectsByTcp", kFiles | kCalls, [](const Host& h) { return h.connects_tcp(); }, 4},
      {"OpensUdp", kCalls, [](const Host&) { return ::socket(AF_INET, SOCK_DGRAM, 0) >= 0; }},
      {"OpensNetlink", kCalls, [](const Host&) { return ::socket(AF_NETLINK, SOCK_RAW, 0) >= 0; }},
      {"ConnectsToAbstract", kFiles | kCalls, [](const Host& h) { return h.connects_abstract(); },
       6},
      {"ConnectsToTheClientsSocket", kCalls,
       [](const Host& h) { return h.connects_to("trainyard.sock"); }},
      {"StartsAShell", kFiles | kCalls, [](const Host&) { return starts_shell(); }},
      {"Forks", kCalls,
       [](const Host&) {
         const pid_t pid = ::fork();
         if (pid == 0) ::_exit(0);
         return pid > 0;
       }},
      {"TracesTheDaemon", kFiles | kCalls,
       [](const Host&) { return ::ptrace(PTRACE_SEIZE, daemon, nullptr, nullptr) == 0; }},
      {"SignalsTheDaemon", kFiles | kCalls, [](const Host&) { return ::kill(daemon, 0) == 0; }, 6},
      {"LowersTheDaemon", kCalls,
       [](const Host&) { return ::setpriority(PRIO_PROCESS, static_cast<id_t>(daemon), 19) == 0; }},
      {"Mounts", kCalls,
       [](const Host& h) {
         return ::mount("none", h.path("jobs/mine").c_str(), "tmpfs", 0, nullptr) == 0;
       }},
      {"MakesANamespace", kCalls, [](const Host&) { return ::unshare(CLONE_NEWUSER) == 0; }},
      {"OpensAnIoRing", kCalls,
       [](const Host&) {
         std::array<char, 128> parameters{};
         return ::syscall(SYS_io_uring_setup, 1, parameters.data()) >= 0;
       }},
      {"AddsAKey", kCalls,
       [](const Host&) {
         return ::syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3, 1) >= 0;
       }},
      {"RaisesLimits", kLimits, [](const Host&) { return raises_limits(); }},
      {"AllocatesBeyondTheLimit", kLimits, [](const Host&) { return allocates_beyond_limit(); }},
      {"SharesMemory", kCalls, [](const Host&) { return shares_memory(); }},
      {"WritesALargeFile", kLimits, [](const Host& h) { return writes_a_large_file(h); }},
  };
  return all;
}

std::string name_of(SandboxProfile profile) {
  switch (profile) {
    case SandboxProfile::kParse:
      return "Parse";
    case SandboxProfile::kCompute:
      return "Compute";
    case SandboxProfile::kTrain:
      return "Train";
    case SandboxProfile::kNone:
      break;
  }
  return "None";
}

/// What a host has against the attempt.
unsigned means_of(const SandboxHost& host, const Attempt& attempt) {
  unsigned means = kLimits;
  if (host.filters_calls) means |= kCalls;
  if (host.landlock_abi >= attempt.abi_min) means |= kFiles;
  return means;
}

struct Case {
  SandboxProfile profile;
  int abi;  // at most; of Landlock
  bool filters_calls;
};

class SandboxEscape : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    host_ = probe_sandbox_host();
    if (!missing_restrictions(host_).empty()) GTEST_SKIP() << missing_restrictions(host_).front();
    host_.landlock_abi = std::min(host_.landlock_abi, GetParam().abi);
    host_.filters_calls = GetParam().filters_calls;
  }
  SandboxHost host_;
};

TEST_P(SandboxEscape, EachAttemptIsRefusedByWhatTheHostHas) {
  const Host files;
  for (const Attempt& attempt : attempts()) {
    SCOPED_TRACE(attempt.name);
    const auto run = [&] { return attempt.run(files); };
    const int result = run_in(files.sandbox(GetParam().profile), host_, run);
    if ((means_of(host_, attempt) & attempt.means) != 0) {
      EXPECT_EQ(result, kRefused);
    } else {
      EXPECT_TRUE(result == kRefused || result == kEscaped) << result;
    }
  }
}

TEST_P(SandboxEscape, TheTasksOwnWorkIsAllowed) {
  const Host files;
  const auto work = [&] {
    bool done = reads(files.path("uploads/input"));
    const fs::path folder = files.path("jobs/mine/step-1.tmp");
    std::error_code ec;
    done = done && fs::create_directory(folder, ec);
    done = done && opens(folder / "weights", O_WRONLY | O_CREAT | O_TRUNC);
    fs::rename(folder, files.path("jobs/mine/step-1"), ec);
    done = done && !ec && fs::remove_all(files.path("jobs/mine/step-1"), ec) == 2;
    bool ran = false;
    std::thread([&ran] { ran = true; }).join();
    return done && ran;
  };
  EXPECT_EQ(run_in(files.sandbox(GetParam().profile), host_, work), kEscaped) << "some work failed";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const SandboxProfile profile :
       {SandboxProfile::kParse, SandboxProfile::kCompute, SandboxProfile::kTrain}) {
    for (const int abi : {0, 2, 3, 4, 99}) all.push_back({profile, abi, true});
    all.push_back({profile, 99, false});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Hosts, SandboxEscape, testing::ValuesIn(cases()), [](const auto& named) {
  const Case& c = named.param;
  return name_of(c.profile) + "Abi" + std::to_string(c.abi) + (c.filters_calls ? "" : "NoFilter");
});

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    host_ = probe_sandbox_host();
    if (!missing_restrictions(host_).empty()) GTEST_SKIP() << missing_restrictions(host_).front();
  }
  SandboxHost host_;
};

TEST_F(SandboxTest, OnlyTheProfilesThatComputeMakeCode) {
  const Host files;
  const auto makes_code = [] {
    return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0) != MAP_FAILED;
  };
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kParse), host_, makes_code), kRefused);
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kCompute), host_, makes_code), kEscaped);
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kTrain), host_, makes_code), kEscaped);
}

TEST_F(SandboxTest, OnlyTrainingConnectsToTheDaemon) {
  const Host files;
  const auto connects = [] {
    const sockaddr_un* const address = sealed_address();
    return address != nullptr &&
           Host::connects(reinterpret_cast<const sockaddr*>(address), sizeof *address);
  };
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kTrain), host_, connects), kEscaped);
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kCompute), host_, connects), kRefused);
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kParse), host_, connects), kRefused);
}

TEST_F(SandboxTest, TheDaemonsAddressCannotBeReplaced) {
  if (!host_.seals_memory) GTEST_SKIP() << "this kernel cannot seal memory";
  const Host files;
  const auto replaces = [] {
    auto* const page = const_cast<sockaddr_un*>(sealed_address());
    const bool unmapped = ::munmap(page, 4096) == 0;
    const bool writable = ::mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0;
    const bool covered = ::mmap(page, 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    return unmapped || writable || covered;
  };
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kTrain), host_, replaces), kRefused);
}

TEST_F(SandboxTest, ARequiredSandboxIsRefusedOnAHostThatLacksAPart) {
  const Host files;
  Sandbox sandbox = files.sandbox(SandboxProfile::kParse);
  sandbox.required = true;
  const auto nothing = [] { return false; };
  EXPECT_EQ(run_in(sandbox, host_, nothing), kRefused);
  SandboxHost less = host_;
  less.landlock_abi = 1;
  EXPECT_EQ(run_in(sandbox, less, nothing), kNoSandbox);
  less = host_;
  less.filters_calls = false;
  EXPECT_EQ(run_in(sandbox, less, nothing), kNoSandbox);
}

TEST_F(SandboxTest, ASourceIsNotReachedThroughALink) {
  const Host files;
  fs::create_symlink(files.path("trainyard.db"), files.path("uploads/link"));
  Sandbox sandbox = files.sandbox(SandboxProfile::kParse);
  sandbox.sources = {files.path("uploads/link"), files.path("jobs/other/reports-1")};
  EXPECT_EQ(run_in(sandbox, host_, [&] { return reads(files.path("trainyard.db")); }), kRefused);
  EXPECT_EQ(run_in(sandbox, host_, [&] { return reads(files.path("jobs/other/reports-1")); }),
            kEscaped);
}

TEST_F(SandboxTest, AProgramRunsInTheSameSandbox) {
  const Host files;
  Sandbox sandbox = files.sandbox(SandboxProfile::kParse);
  sandbox.program = fs::canonical("/bin/sh");
  const auto runs = [](const std::string& command) {
    return [command] {
      const pid_t pid = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
      if (pid == 0) {
        ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
        ::_exit(1);
      }
      int status = 1;
      return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
    };
  };
  EXPECT_EQ(run_in(sandbox, host_,
                   runs("read line < '" + files.path("uploads/input").string() +
                        "'; test \"$line\" = secret")),
            kEscaped);
  EXPECT_EQ(run_in(sandbox, host_, runs(": < '" + files.path("trainyard.db").string() + "'")),
            kRefused);
  EXPECT_EQ(run_in(sandbox, host_, runs("exec /bin/ls /")), kRefused);
}

TEST_F(SandboxTest, NoCapabilityIsLeft) {
  const Host files;
  const auto has_some = [] {
    const Result<std::string> status = read_file("/proc/self/status", 1 << 20);
    if (!status.ok()) return true;
    for (const char* set : {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"}) {
      const size_t at = status->find(set);
      if (status->compare(at + std::strlen(set) + 1, 16, "0000000000000000") != 0) {
        return std::strcmp(set, "CapBnd:") != 0 || ::geteuid() == 0;
      }
    }
    return false;
  };
  EXPECT_EQ(run_in(files.sandbox(SandboxProfile::kTrain), host_, has_some), kRefused);
}

TEST(SandboxHostTest, NamesWhatIsMissing) {
  SandboxHost host{.landlock_abi = 7, .filters_calls = true, .seals_memory = true, .sanitizer = ""};
  EXPECT_TRUE(missing_restrictions(host).empty());
  EXPECT_EQ(describe(host),
            "files (Landlock ABI 7), TCP, abstract sockets and signals, system calls (seccomp), "
            "limits, no capabilities");
  host.landlock_abi = 2;
  EXPECT_EQ(describe(host),
            "files (Landlock ABI 2), system calls (seccomp), limits, no capabilities");
  host.landlock_abi = 0;
  host.filters_calls = false;
  EXPECT_EQ(missing_restrictions(host).size(), 2);
  host.sanitizer = "a sanitizer";
  EXPECT_EQ(missing_restrictions(host).size(), 1);
}

}  // namespace
}  // namespace trainyard::server
