// src/base/cores.h: how many threads are worth starting.
#pragma once

namespace trainyard {

/// The number of cores that this process may run on.
int usable_cores();

}  // namespace trainyard
