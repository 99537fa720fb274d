// server/store/done.h: the callback through which the store returns the result of a change.
#pragma once

#include <functional>

#include "src/base/result.h"

namespace trainyard::server {

/// The store calls it exactly once, after the change is durable or was refused.
template <typename T>
using Done = std::function<void(Result<T>)>;

}  // namespace trainyard::server
