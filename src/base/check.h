// src/base/check.h: checks of invariants. A failed check is a fault, which is thrown as an
// exception.
//
// A fault is something that no input should cause: a broken invariant, a device error. Engine code
// does not catch them; the worker reports them and exits (server/worker/worker.cc).
#pragma once

#include <stdexcept>
#include <string>

namespace trainyard {

struct InvariantError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void fail_check(const char* condition, const std::string& message,
                                    const char* file, int line) {
  throw InvariantError(std::string(file) + ":" + std::to_string(line) + ": " + condition + ": " +
                       message);
}

/// Also active in release builds. Use it at function entry for preconditions that the parameter
/// types cannot express.
#define TRAINYARD_CHECK(cond, message)                                        \
  do {                                                                        \
    if (!(cond)) ::trainyard::fail_check(#cond, message, __FILE__, __LINE__); \
  } while (false)

/// Active in debug builds only, for inner loops.
#ifdef NDEBUG
#define TRAINYARD_DCHECK(cond, message) \
  do {                                  \
  } while (false && (cond))
#else
#define TRAINYARD_DCHECK(cond, message) TRAINYARD_CHECK(cond, message)
#endif

}  // namespace trainyard
