#include "server/sandbox/sealed_address.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace trainyard::server {
namespace {

constexpr long kMseal = 462;  // newer than the headers of Debian 12
const sockaddr_un* sealed = nullptr;

bool seal(void* memory, size_t bytes) { return ::syscall(kMseal, memory, bytes, 0) == 0; }

}  // namespace

const sockaddr_un* seal_address(const std::filesystem::path& socket) {
  if (sealed != nullptr) return sealed;
  const std::string path = socket.string();
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) return nullptr;
  const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const address = new (memory) sockaddr_un{};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, path.data(), path.size());
  if (::mprotect(memory, bytes, PROT_READ) != 0) return nullptr;
  (void)seal(memory, bytes);  // as far as the kernel can
  sealed = address;
  return sealed;
}

const sockaddr_un* sealed_address() { return sealed; }

bool can_seal_memory() {
  const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // Nothing is mapped at the address 0, so a kernel with mseal() answers ENOMEM.
  return ::syscall(kMseal, nullptr, bytes, 0) == 0 || errno == ENOMEM;
}

}  // namespace trainyard::server
