#include "src/data/typed_dataset.h"

#include <unistd.h>

#include "src/base/text.h"

namespace trainyard {

Status check_memory(int64_t bytes, const std::string& what) {
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * int64_t{::sysconf(_SC_PAGESIZE)};
  if (bytes <= memory) return {};
  return make_error(ErrorCode::kResourceExhausted, "DATASET_TOO_LARGE",
                    what + ": the typed form needs " + human_bytes(bytes) +
                        ", but this machine has " + human_bytes(memory) + " of memory");
}

}  // namespace trainyard
