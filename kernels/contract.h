// kernels/contract.h: the check of a kernel's arguments at entry, in every build. A contract header
// defines check(params, operands), which every backend's function calls first:
//
//   Contract("adam").size("count", s.count).given("g", o.g).given("p", o.p);
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/alignment.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// A call that breaks a contract: a programming error of the caller, which no user input can cause.
struct ContractError : std::logic_error {
  using std::logic_error::logic_error;
};

class Contract {
 public:
  explicit constexpr Contract(const char* kernel) : kernel_(kernel) {}

  /// Requires that a size is at least 1.
  const Contract& size(const char* name, int64_t value) const {
    if (value < 1) fail_size(name, value);
    return *this;
  }
  /// Requires that an operand is not null.
  template <typename Operand>
  const Contract& given(const char* name, const Operand& operand) const {
    if (!operand) fail(name, "is missing");
    return *this;
  }
  /// Requires a workspace with the backend's alignment.
  template <typename T>
  const Contract& workspace(const reference::Run<T>& run) const {
    return given("workspace", run.workspace);
  }
  const Contract& workspace(const cpu::Run& run) const {
    return aligned("workspace", run.workspace, kHostAlignment);
  }
  const Contract& workspace(const cuda::Run& run) const {
    return aligned("workspace", run.workspace, kCudaAlignment);
  }
  const Contract& aligned(const char* name, const void* address, int64_t alignment) const {
    given(name, address);
    if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0) {
      fail(name, "is not aligned");
    }
    return *this;
  }
  /// Requires any other condition; `otherwise` says what is wrong with `name` if it fails.
  const Contract& holds(bool condition, const char* name, const char* otherwise) const {
    if (!condition) fail(name, otherwise);
    return *this;
  }

 private:
  [[noreturn]] void fail(const char* name, const std::string& what) const {
    throw ContractError(std::string(kernel_) + ": " + name + " " + what);
  }
  [[noreturn]] void fail_size(const char* name, int64_t value) const {
    fail(name, "is " + std::to_string(value) + ", not 1 or more");
  }
  const char* kernel_;
};

/// Returns the start of a kernel's workspace. Throws ContractError if it is missing or not aligned.
template <typename T, typename Run>
T* workspace_of(const char* kernel, const Run& run) {
  Contract(kernel).workspace(run);
  return static_cast<T*>(run.workspace);
}

}  // namespace trainyard::kernels
