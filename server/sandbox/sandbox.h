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

#include <string>
#include <vector>

#include "server/sandbox/description.h"
#include "src/base/result.h"

namespace trainyard::server {

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
