#include "src/runtime/join.h"

#include <charconv>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "src/base/check.h"

namespace trainyard {
namespace {

// Returns the form in which processes send an error to each other: code, reason and message, one
// per line. Empty: no error.
std::string to_text(const Status& status) {
  if (status.ok()) return {};
  const Error& e = status.error();
  return std::to_string(static_cast<int>(e.code)) + "\n" + e.reason + "\n" + e.message;
}

Error to_error(const std::string& text, const std::string& whose) {
  const size_t first = text.find('\n');
  const size_t second = first == text.npos ? first : text.find('\n', first + 1);
  int code = 0;
  const auto [end, parsed] = std::from_chars(text.data(), text.data() + text.size(), code);
  TRAINYARD_CHECK(second != text.npos && parsed == std::errc() && *end == '\n' && code > 0 &&
                      code <= static_cast<int>(ErrorCode::kUnauthenticated),
                  whose + " has sent an invalid error text");
  return make_error(static_cast<ErrorCode>(code), text.substr(first + 1, second - first - 1),
                    whose + ": " + text.substr(second + 1));
}

/// Orders errors by significance: the smallest value is the cause, for which other processes stop
/// or wait in vain.
int order_of(const Error& e) {
  if (e.code == ErrorCode::kCancelled) return 0;
  const bool follows = e.code == ErrorCode::kAborted || e.code == ErrorCode::kDeadlineExceeded;
  return follows ? 2 : 1;
}

/// Executes a step in all processes. An exception in this process becomes an error in the others,
/// and is rethrown once all know of it.
Status take_together(Peers& peers, const std::function<Status()>& step) {
  Status done;
  std::exception_ptr fault;
  try {
    done = step();
  } catch (const std::exception& e) {
    fault = std::current_exception();
    done = make_error(ErrorCode::kUnavailable, "RANK_FAULT", e.what());
  }
  Status all = agree(peers, done);
  if (fault != nullptr) std::rethrow_exception(fault);
  return all;
}

}  // namespace

Status agree(Peers& peers, const Status& here) {
  const std::vector<std::string> texts = peers.all_texts(to_text(here));
  std::optional<Error> first;
  for (int64_t p = 0; p < std::ssize(texts); ++p) {
    const std::string& text = texts[static_cast<size_t>(p)];
    if (text.empty()) continue;
    Error e = to_error(text, peers.name_of(p));
    if (!first.has_value() || order_of(e) < order_of(*first)) first = std::move(e);
  }
  if (!first.has_value()) return {};
  return *std::move(first);
}

Result<std::vector<RankDevice>> join_devices(
    const std::shared_ptr<Peers>& peers,
    const std::function<Result<std::vector<RankDevice>>()>& open) {
  std::vector<RankDevice> devices;
  std::vector<Backend*> backends;
  const auto open_mine = [&]() -> Status {
    ASSIGN_OR_RETURN(devices, open());
    for (const RankDevice& device : devices) backends.push_back(device.backend.get());
    TRAINYARD_CHECK(std::ssize(devices) == peers->ranks_each(),
                    std::to_string(devices.size()) + " devices, expected " +
                        std::to_string(peers->ranks_each()));
    return {};
  };
  if (Status s = take_together(*peers, open_mine); !s.ok()) return std::move(s).error();
  ProcessGroup group{.peers = peers,
                     .first_rank = peers->first_rank(),
                     .ranks = peers->ranks(),
                     .address = peers->address(),
                     .id = {},
                     .limit = peers->connect_limit(),
                     .stop = peers->stop()};
  const auto prepare = [&]() -> Status {
    ASSIGN_OR_RETURN(group.id, backends.front()->prepare_join(group));
    return {};
  };
  if (Status s = take_together(*peers, prepare); !s.ok()) return std::move(s).error();
  group.id = peers->of_first(group.id);
  const auto join = [&] { return backends.front()->join(backends, group); };
  if (Status s = take_together(*peers, join); !s.ok()) return std::move(s).error();
  return devices;
}

std::string describe_connection(Peers& peers, const Communicator& mine) {
  const std::vector<std::string> texts = peers.all_texts(mine.about());
  std::string all;
  for (int64_t p = 0; p < std::ssize(texts); ++p) {
    const std::string& text = texts[static_cast<size_t>(p)];
    if (!text.empty()) all += (all.empty() ? "" : "; ") + peers.name_of(p) + ": " + text;
  }
  return all;
}

}  // namespace trainyard
