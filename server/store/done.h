// server/store/done.h: how the store answers.
#pragma once

#include <functional>

#include "src/base/result.h"

namespace trainyard::server {

/// Called exactly once, after the change is durable or was refused.
template <typename T>
using Done = std::function<void(Result<T>)>;

}  // namespace trainyard::server
