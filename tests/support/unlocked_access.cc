// tests/support/unlocked_access.cc: no program. scripts/check clang compiles it to see that clang
// refuses it: a guarded member is read without its mutex.
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
