// server/sandbox/sandbox.h: restricts a worker to what its task needs, so that an exploited parser
// owns a scratch folder and nothing else.
//
//   start of the process -> restrict_process() -> threads, connection, assignment
//                        -> filter_system_calls() -> the first byte of untrusted data
//
// The worker restricts itself: the daemon describes how (Sandbox), and what the worker has given up
// it cannot get back. Four parts of the kernel do it, some of which a host may lack:
//   Landlock      which files may be read, written and executed; no TCP, no abstract sockets, no
//                 signals to other processes, by ABI
//   seccomp       which system calls exist
//   rlimits       memory, size of a file, descriptors; no core files
//   capabilities  none
// docs/decisions/worker-sandbox.md says what each profile allows and why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

/// From the tightest to none.
enum class SandboxProfile : uint8_t {
  kParse,    // reads untrusted files: no sockets, no code made at run time, no other programs
  kCompute,  // serves a model or measures the CPU: as kParse, with code made at run time
  kTrain,    // trains on the CPU: as kCompute, and connects to the daemon again after its restart
  kNone,     // no restriction: tasks on a GPU
};

struct Sandbox {
  SandboxProfile profile = SandboxProfile::kNone;
  bool required = false;  // refuse to run on a host that lacks a part; otherwise use the others
  std::vector<std::filesystem::path> readable;  // files and folders; missing ones are left out
  // As `readable`, for paths that users have chosen: left out if reached through a link.
  std::vector<std::filesystem::path> sources;
  std::vector<std::filesystem::path> writable;  // folders, which must exist
  std::filesystem::path socket;  // for kTrain: the Unix socket to which it may connect
  // The only program that the task may execute; it has the same restrictions. Empty: none.
  std::filesystem::path program;
  int64_t memory_bytes = 0;  // private memory of the process (RLIMIT_DATA); 0: no limit
  int64_t file_bytes = 0;    // the largest file that it may write; 0: no limit
};

/// What a host's kernel offers. A test passes a host with less than its own, to see the sandbox
/// hold there; nothing outside the process can change it.
struct SandboxHost {
  int landlock_abi = 0;        // 0: none
  bool filters_calls = false;  // seccomp
  bool seals_memory = false;   // mseal, for the address of the daemon (sealed_address.h)
  std::string sanitizer;       // the build's sanitizer, which cannot run restricted; empty: none
};

/// The oldest ABI of Landlock that is used: ABI 1 cannot rename between folders.
inline constexpr int kLandlockAbiMin = 2;

SandboxHost probe_sandbox_host();

/// Returns what the host lacks, as sentences for the operator; empty if it lacks nothing.
std::vector<std::string> missing_restrictions(const SandboxHost& host);
/// Returns one line for people: "Landlock ABI 7, system call filter, limits".
std::string describe(const SandboxHost& host);

/// Must be called while the process has one thread, after its libraries are loaded. Does nothing
/// for the profile kNone. FAILED_PRECONDITION/SANDBOX_UNAVAILABLE: a part is missing that is
/// required, or one that the host has could not be applied.
Status restrict_process(const Sandbox& sandbox, const SandboxHost& host);
/// Applies to all threads of the process. Must be called when the process has its connections.
Status filter_system_calls(const Sandbox& sandbox, const SandboxHost& host);

}  // namespace trainyard::server
