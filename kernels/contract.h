// kernels/contract.h: what a kernel asks of its arguments, checked once at entry, in every build. A
// contract header says it in check(params, operands), and every backend's function begins with
// that:
//
//   Contract("adam").size("count", s.count).given("g", o.g).given("p", o.p);
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/alignment.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

/// A call that breaks a contract: a fault of the caller, which no user's input causes.
struct ContractError : std::logic_error {
  using std::logic_error::logic_error;
};

class Contract {
 public:
  explicit constexpr Contract(const char* kernel) : kernel_(kernel) {}

  /// A size is 1 or more.
  const Contract& size(const char* name, int64_t value) const {
    if (value < 1) fail_size(name, value);
    return *this;
  }
  /// An operand is there.
  template <typename Operand>
  const Contract& given(const char* name, const Operand& operand) const {
    if (!operand) fail(name, "is missing");
    return *this;
  }
  /// There is a workspace, aligned as the backend's memory is.
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
  /// Whatever else a contract says of `name`.
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

/// Where a kernel's workspace begins: it has one, aligned as the backend's memory is.
template <typename T, typename Run>
T* workspace_of(const char* kernel, const Run& run) {
  Contract(kernel).workspace(run);
  return static_cast<T*>(run.workspace);
}

}  // namespace trainyard::kernels
