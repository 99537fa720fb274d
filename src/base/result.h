// src/base/result.h: refusals, which are expected errors that functions return as values.
//
// A refusal reports a problem outside of the program: a bad spec, a missing file, a full disk.
// Every function that a user's input can make fail returns Result<T> (a value or an Error). Faults,
// which no input should cause, are exceptions (src/base/check.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/check.h"

namespace trainyard {

/// The canonical gRPC codes, with gRPC's numbers, so that server/ converts them with a cast.
enum class ErrorCode : uint8_t {
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

/// One refused field: its path as the user wrote it (`model.layers[3].conv.strides`) and one
/// sentence.
struct FieldViolation {
  std::string field;
  std::string description;
};

/// A refusal. `message` is one sentence that names the field, its value and the accepted values.
/// `reason` is a stable key for programs, in upper snake case, with at most 63 characters.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string reason;
  std::string message;
  std::map<std::string, std::string> metadata;
  std::vector<FieldViolation> violations;
};

/// Returns a refused field of the caller's input. The message becomes "field: description".
inline Error field_error(std::string reason, std::string field, std::string description) {
  Error e{ErrorCode::kInvalidArgument, std::move(reason), field + ": " + description, {}, {}};
  e.violations.push_back({std::move(field), std::move(description)});
  return e;
}
inline Error make_error(ErrorCode code, std::string reason, std::string message) {
  return Error{code, std::move(reason), std::move(message), {}, {}};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  template <typename U>
  requires(std::is_constructible_v<T, U&&> && !std::is_same_v<std::decay_t<U>, T> &&
           !std::is_same_v<std::decay_t<U>, Error> && !std::is_same_v<std::decay_t<U>, Result>)
      Result(U&& value)
      : v_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return check_ok(), std::get<0>(v_); }
  const T& value() const& { return check_ok(), std::get<0>(v_); }
  T&& value() && { return check_ok(), std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(v_); }
  Error&& error() && { return std::get<1>(std::move(v_)); }

 private:
  void check_ok() const {
    if (!ok()) throw InvariantError("value() of a refused Result: " + std::get<1>(v_).message);
  }
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  void value() const {
    if (!ok_) throw InvariantError("value() of a refused Status: " + error_.message);
  }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};
using Status = Result<void>;

#define TRAINYARD_CONCAT_INNER(a, b) a##b
#define TRAINYARD_CONCAT(a, b) TRAINYARD_CONCAT_INNER(a, b)
/// `ASSIGN_OR_RETURN(const Plan plan, compile(graph));` defines `plan`, or returns compile()'s
/// Error from the calling function.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(TRAINYARD_CONCAT(result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr)  \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  lhs = std::move(tmp).value()

}  // namespace trainyard
