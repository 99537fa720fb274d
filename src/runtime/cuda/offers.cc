#include "src/runtime/cuda/offers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "src/base/mutex.h"

namespace trainyard::cuda {
namespace {

constexpr const char* text_of(Offer offer) {
  switch (offer) {
    case Offer::kNone:
      return "none";
    case Offer::kOffered:
      return "offered";
    case Offer::kLosesNan:
      return "loses NaN";
  }
  return "";
}

}  // namespace

void note_offer(const std::string& library, const std::string& operation,
                const std::string& formats, const std::string& problem, Offer offer) {
  const char* const path = std::getenv("TRAINYARD_LIBRARY_OFFERS");
  if (path == nullptr || *path == '\0') return;
  const std::string line = R"({"library": ")" + library + R"(", "operation": ")" + operation +
                           R"(", "formats": ")" + formats + R"(", "problem": ")" + problem +
                           R"(", "offer": ")" + text_of(offer) + "\"}\n";
  static Mutex mutex;
  static std::set<std::string> noted;
  const MutexLock lock(mutex);
  if (!noted.insert(line).second) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  // One write appends the whole line, so lines of several processes do not mix.
  (void)!write(file, line.data(), line.size());
  close(file);
}

}  // namespace trainyard::cuda
