// src/base/cores.h: how many threads are worth starting.
#pragma once

namespace trainyard {

/// Cores that this process may run on.
int usable_cores();

}  // namespace trainyard
