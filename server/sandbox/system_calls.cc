#include "server/sandbox/system_calls.h"

#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>

#include "src/base/handle.h"

namespace trainyard::server {
namespace {

using Filter = Handle<void, seccomp_release>;

// Calls without a condition, for all profiles. Which files and folders they reach is Landlock's
// part; links, devices, owners and extended attributes are not among them.
constexpr std::array kEverywhere = {
    // descriptors that are open already
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
    SCMP_SYS(pwrite64), SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(lseek), SCMP_SYS(close),
    SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(fsync),
    SCMP_SYS(fdatasync), SCMP_SYS(sync_file_range), SCMP_SYS(ftruncate), SCMP_SYS(fallocate),
    SCMP_SYS(fadvise64), SCMP_SYS(flock), SCMP_SYS(getdents64), SCMP_SYS(copy_file_range),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2), SCMP_SYS(sendmsg), SCMP_SYS(recvmsg), SCMP_SYS(sendto), SCMP_SYS(recvfrom),
    SCMP_SYS(shutdown), SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    // files by name
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat),
    SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
    SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(mkdir), SCMP_SYS(mkdirat),
    SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
    SCMP_SYS(rmdir),
    // memory
    SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(mincore),
    SCMP_SYS(membarrier),
    // threads of this process
    SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(set_robust_list),
    SCMP_SYS(set_tid_address), SCMP_SYS(rseq), SCMP_SYS(exit), SCMP_SYS(exit_group),
    SCMP_SYS(getcpu),
    // signals that it gets
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait), SCMP_SYS(rt_sigsuspend), SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    // time, random numbers, and who it is
    SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(times), SCMP_SYS(getrusage),
    SCMP_SYS(getrlimit), SCMP_SYS(getrandom), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getpid),
    SCMP_SYS(gettid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(getpgrp), SCMP_SYS(getpriority)};

// Threads are pinned and lowered in priority by the libraries that compute.
constexpr std::array kComputing = {SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_getscheduler),
                                   SCMP_SYS(sched_getparam), SCMP_SYS(get_mempolicy)};

// What starting a program and waiting for it needs. Which program is Landlock's part. Its text
// travels in files without a name.
constexpr std::array kRunningAProgram = {
    SCMP_SYS(execve),     SCMP_SYS(vfork),       SCMP_SYS(wait4),  SCMP_SYS(waitid),
    SCMP_SYS(setpgid),    SCMP_SYS(dup2),        SCMP_SYS(dup3),   SCMP_SYS(memfd_create),
    SCMP_SYS(arch_prctl), SCMP_SYS(close_range), SCMP_SYS(getpgid)};

// glibc and others fall back to older calls, whose arguments a filter can see.
constexpr std::array kReplaced = {SCMP_SYS(clone3), SCMP_SYS(openat2), SCMP_SYS(futex_waitv),
                                  SCMP_SYS(epoll_pwait2), SCMP_SYS(fchmodat)};

constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                    CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;

Error not_filtered(const char* what, int err) {
  return make_error(ErrorCode::kFailedPrecondition, "SANDBOX_UNAVAILABLE",
                    std::string("seccomp: ") + what + ": " + std::strerror(err));
}

/// Collects rules; remembers the first error.
class CallRules {
 public:
  explicit CallRules(scmp_filter_ctx filter) : filter_(filter) {}

  void allow(std::span<const int> calls) {
    for (const int call : calls) add(SCMP_ACT_ALLOW, call, {});
  }
  void replace(std::span<const int> calls) {
    for (const int call : calls) add(SCMP_ACT_ERRNO(ENOSYS), call, {});
  }
  /// Allows the call if all conditions hold.
  void allow_if(int call, std::initializer_list<scmp_arg_cmp> conditions) {
    add(SCMP_ACT_ALLOW, call, conditions);
  }
  int error() const { return error_; }

 private:
  void add(uint32_t action, int call, std::span<const scmp_arg_cmp> conditions) {
    const int result = ::seccomp_rule_add_array(
        filter_, action, call, static_cast<unsigned>(conditions.size()), conditions.data());
    // A call that this processor's kernel never had, such as open() on ARM, needs no rule.
    if (result != 0 && result != -EDOM && error_ == 0) error_ = -result;
  }

  scmp_filter_ctx filter_;
  int error_ = 0;
};

scmp_arg_cmp equals(unsigned argument, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}

scmp_arg_cmp has_bits(unsigned argument, uint64_t mask, uint64_t bits) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = bits};
}

void allow_memory(CallRules& rules, bool makes_code) {
  const uint64_t forbidden = makes_code ? 0 : PROT_EXEC;
  // Anonymous memory that is shared escapes RLIMIT_DATA, so a mapping is private or of a file.
  rules.allow_if(SCMP_SYS(mmap), {has_bits(2, forbidden, 0), has_bits(3, MAP_SHARED, 0)});
  rules.allow_if(SCMP_SYS(mmap), {has_bits(2, forbidden, 0), has_bits(3, MAP_ANONYMOUS, 0)});
  rules.allow_if(SCMP_SYS(mprotect), {has_bits(2, forbidden, 0)});
}

void allow_threads(CallRules& rules, bool runs_program) {
  rules.allow_if(SCMP_SYS(clone), {has_bits(0, CLONE_THREAD | kNewNamespaces, CLONE_THREAD)});
  if (runs_program) rules.allow_if(SCMP_SYS(clone), {has_bits(0, kNewNamespaces, 0)});
}

/// Only this process: for abort(), and for threads that wake each other.
void allow_own_signals(CallRules& rules) {
  const auto self = static_cast<uint64_t>(::getpid());
  rules.allow_if(SCMP_SYS(tgkill), {equals(0, self)});
  rules.allow_if(SCMP_SYS(kill), {equals(0, self)});
}

void allow_own_settings(CallRules& rules) {
  rules.allow_if(SCMP_SYS(prctl), {equals(0, PR_SET_NAME)});
  rules.allow_if(SCMP_SYS(prctl), {equals(0, PR_GET_NAME)});
  rules.allow_if(SCMP_SYS(prlimit64), {equals(0, 0), equals(2, 0)});  // reads its own limits
  for (const unsigned long request : {TCGETS, FIONREAD, FIONBIO}) {
    rules.allow_if(SCMP_SYS(ioctl), {equals(1, request)});
  }
}

void allow_connection(CallRules& rules, const sockaddr_un* address) {
  rules.allow_if(SCMP_SYS(socket),
                 {equals(0, AF_UNIX), has_bits(1, 0xf, SOCK_STREAM), equals(2, 0)});
  rules.allow_if(SCMP_SYS(connect),
                 {equals(1, reinterpret_cast<uintptr_t>(address)), equals(2, sizeof(sockaddr_un))});
}

}  // namespace

bool can_filter_system_calls() {
  const uint32_t action = SECCOMP_RET_ERRNO;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

Status load_filter(const FilterOptions& options) {
  const auto& [profile, runs_program, address] = options;
  const Filter filter(::seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (!filter) return not_filtered("seccomp_init", ENOMEM);
  const auto set = [&](scmp_filter_attr name, uint32_t value) {
    return ::seccomp_attr_set(filter.get(), name, value);
  };
  // Speculation is left as it is (SSB): kernels before 5.16 would otherwise slow the process down.
  // A call by another processor's numbers (32 bits) ends the process.
  if (set(SCMP_FLTATR_CTL_TSYNC, 1) != 0 || set(SCMP_FLTATR_CTL_SSB, 1) != 0 ||
      set(SCMP_FLTATR_CTL_OPTIMIZE, 2) != 0 ||
      set(SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) != 0) {
    return not_filtered("seccomp_attr_set", EINVAL);
  }
  CallRules rules(filter.get());
  rules.allow(kEverywhere);
  rules.replace(kReplaced);
  allow_memory(rules, profile != SandboxProfile::kParse || runs_program);
  allow_threads(rules, runs_program);
  allow_own_signals(rules);
  allow_own_settings(rules);
  if (runs_program) rules.allow(kRunningAProgram);
  if (profile != SandboxProfile::kParse) {
    rules.allow(kComputing);
    rules.allow_if(SCMP_SYS(setpriority), {equals(0, PRIO_PROCESS), equals(1, 0)});
  }
  if (profile == SandboxProfile::kTrain && address != nullptr) allow_connection(rules, address);
  if (rules.error() != 0) return not_filtered("seccomp_rule_add", rules.error());
  if (const int result = ::seccomp_load(filter.get()); result != 0) {
    return not_filtered("seccomp_load", -result);
  }
  return {};
}

}  // namespace trainyard::server
