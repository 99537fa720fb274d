// The unit in which the tests of the scheduler and of the service count memory.
#pragma once

#include <cstdint>

namespace trainyard::server {

inline constexpr int64_t kGiB = int64_t{1} << 30;

}  // namespace trainyard::server
