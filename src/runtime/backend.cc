#include "src/runtime/backend.h"

#include <new>

#include "src/plan/program.h"

namespace trainyard {

Status Backend::connect(std::span<Backend* const> /*ranks*/) {
  return make_error(ErrorCode::kFailedPrecondition, "DEVICES_UNSUPPORTED",
                    "the " + std::string(name()) + " backend trains a job on one device alone");
}

void* Backend::allocate_host(int64_t bytes) {
  return ::operator new (static_cast<size_t>(bytes),
                         std::align_val_t{static_cast<size_t>(kArenaAlignment)});
}

void Backend::release_host(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{static_cast<size_t>(kArenaAlignment)});
}

}  // namespace trainyard
