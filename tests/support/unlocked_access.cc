// tests/support/unlocked_access.cc: reads a guarded member without its mutex. scripts/check clang
// compiles this file and expects that clang refuses it.
#include "src/base/mutex.h"

namespace trainyard {

class Unlocked {
 public:
  int count() const { return count_; }

 private:
  Mutex mu_;
  int count_ TRAINYARD_GUARDED_BY(mu_) = 0;
};

}  // namespace trainyard
