#include "src/base/handle.h"

#include <unistd.h>

namespace trainyard {

void UniqueFd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace trainyard
