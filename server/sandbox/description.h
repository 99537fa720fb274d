// server/sandbox/description.h: what a task may do, and what a host can enforce.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace trainyard::server
