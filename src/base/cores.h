// src/base/cores.h: the number of usable cores, for pools of threads.
#pragma once

namespace trainyard {

/// Returns the number of cores that this process may run on.
int usable_cores();

}  // namespace trainyard
