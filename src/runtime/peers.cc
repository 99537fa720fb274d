#include "src/runtime/peers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/check.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

// Time within which the end of one process is noticed by all processes that end because of it.
constexpr std::chrono::milliseconds kFollowers{1000};
constexpr int kPollMs = 1000;

}  // namespace

Peers::Peers(PeerIdentity me, const PeerOptions& options)
    : me_(std::move(me)),
      options_(options),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lines_(static_cast<size_t>(me_.count)) {
  TRAINYARD_CHECK(static_cast<bool>(wake_), "no eventfd");
}

Peers::~Peers() { close_all(); }

std::string Peers::name_of(int64_t process) const {
  const int64_t first = process * ranks_each();
  if (ranks_each() == 1) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " + std::to_string(first + ranks_each() - 1);
}

void Peers::begin(Line& line, std::span<const std::span<const std::byte>> out,
                  std::span<const std::span<std::byte>> in) {
  uint64_t out_bytes = 0, in_bytes = 0;
  for (const auto& part : out) out_bytes += part.size();
  for (const auto& part : in) in_bytes += part.size();
  out_.clear();
  in_.clear();
  if (out_bytes > 0) {
    line.out = {line.out.number + 1, out_bytes};
    out_.push_back(std::as_bytes(std::span(&line.out, 1)));
    out_.insert(out_.end(), out.begin(), out.end());
  }
  if (in_bytes > 0) {
    line.expected = {line.expected.number + 1, in_bytes};
    in_.push_back(std::as_writable_bytes(std::span(&line.in, 1)));
    in_.insert(in_.end(), in.begin(), in.end());
  }
  line.begun = out_bytes > 0 || in_bytes > 0;
  line.checked = in_bytes == 0;
  if (line.begun) line.link->begin_transfer(out_, in_);
}

void Peers::check_header(int64_t process) {
  Line& line = lines_[static_cast<size_t>(process)];
  if (line.checked ||
      line.link->received_bytes() < std::ssize(std::as_bytes(std::span(&line.in, 1))))
    return;
  line.checked = true;
  TRAINYARD_CHECK(line.in.number == line.expected.number && line.in.bytes == line.expected.bytes,
                  name_of(process) + " sends message " + std::to_string(line.in.number) + " of " +
                      std::to_string(line.in.bytes) + " bytes where number " +
                      std::to_string(line.expected.number) + " of " +
                      std::to_string(line.expected.bytes) +
                      " is due: the processes do not run the same program");
}

bool Peers::continue_all() {
  bool done = true;
  int64_t awaited = -1;
  first_unfinished_ = -1;
  polled_.assign(1, {wake_.get(), POLLIN, 0});
  for (int64_t p = 0; p < count(); ++p) {
    const Line& line = lines_[static_cast<size_t>(p)];
    if (!line.begun) continue;
    const PeerLink::Progress progress = line.link->continue_transfer();
    check_header(p);
    if (progress == PeerLink::Progress::kFailed) lose(p);
    if (progress == PeerLink::Progress::kDone) continue;
    done = false;
    if (first_unfinished_ < 0) first_unfinished_ = p;
    if (awaited < 0 && line.link->receives()) awaited = p;
    polled_.push_back({line.link->fd(), line.link->events(), 0});
  }
  awaited_ = awaited;
  return done;
}

void Peers::wait(Steady::time_point since) {
  if (Steady::now() - since >= options_.silence_limit) {
    // While this process only sends, it waits for a process that does not read.
    const int64_t process = awaited_ >= 0 ? awaited_.load() : first_unfinished_;
    close_all();
    throw RankLost(name_of(process) + " has neither sent nor received data for " +
                       std::to_string(options_.silence_limit.count() / 1000) + " s",
                   process * ranks_each());
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      since + options_.silence_limit - Steady::now());
  const auto timeout = std::clamp<int64_t>(left.count() + 1, 1, kPollMs);
  (void)::poll(polled_.data(), polled_.size(), static_cast<int>(timeout));
}

void Peers::exchange(const Outgoing& out, const Incoming& in) {
  TRAINYARD_CHECK(std::ssize(out) == count() && std::ssize(in) == count(),
                  "parts for " + std::to_string(out.size()) + " processes");
  if (lost_.has_value()) throw RankLost(*lost_);
  if (aborted_) give_up();
  try {
    exchange_all(out, in);
  } catch (const RankLost& e) {
    lost_ = e;
    throw;
  } catch (...) {
    aborted_ = true;  // the exchange under way cannot be continued
    throw;
  }
}

void Peers::give_up() {
  close_all();
  throw ExchangeAborted("the exchange was aborted");
}

void Peers::exchange_all(const Outgoing& out, const Incoming& in) {
  for (int64_t p = 0; p < count(); ++p) {
    const auto at = static_cast<size_t>(p);
    if (p != index()) begin(lines_[at], out[at], in[at]);
  }
  Steady::time_point since = Steady::now();
  int64_t moved = moved_bytes();
  while (!aborted_ && !continue_all()) {
    if (const int64_t now = moved_bytes(); now != moved) {
      moved = now;
      since = Steady::now();
    }
    wait(since);
  }
  if (aborted_) give_up();
}

void Peers::lose(int64_t process) {
  if (aborted_) give_up();
  const bool orderly = lines_[static_cast<size_t>(process)].link->ended_orderly();
  const int64_t first = orderly ? find_first_ended(process) : process;
  const Line& line = lines_[static_cast<size_t>(first)];
  const bool gave_up = line.link->ended_orderly();
  close_all();
  throw RankLost(name_of(first) + " (" + line.link->address() + ")" +
                     (gave_up ? " has aborted the job" : " has ended: its connection broke"),
                 first * ranks_each());
}

int64_t Peers::find_first_ended(int64_t process) {
  const Steady::time_point end = Steady::now() + kFollowers;
  std::vector<int64_t> open;
  for (int64_t p = 0; p < count(); ++p) {
    if (p != index() && p != process) open.push_back(p);
  }
  while (!open.empty() && Steady::now() < end && !aborted_) {
    polled_.clear();
    for (const int64_t p : open) {
      polled_.push_back({lines_[static_cast<size_t>(p)].link->fd(), POLLRDHUP, 0});
    }
    (void)::poll(polled_.data(), polled_.size(), 50);
    std::vector<int64_t> still;
    for (size_t i = 0; i < open.size(); ++i) {
      PeerLink& link = *lines_[static_cast<size_t>(open[i])].link;
      if (polled_[i].revents == 0 || !link.drain_to_end()) {
        still.push_back(open[i]);
      } else if (!link.ended_orderly()) {
        return open[i];
      }
    }
    open = std::move(still);
  }
  return process;
}

void Peers::all_gather(std::span<std::byte> all) {
  const size_t size = all.size() / static_cast<size_t>(count());
  if (size == 0) return;
  const auto part = [&](int64_t p) { return all.subspan(static_cast<size_t>(p) * size, size); };
  Outgoing out(static_cast<size_t>(count()));
  Incoming in(static_cast<size_t>(count()));
  for (int64_t p = 0; p < count(); ++p) {
    if (p == index()) continue;
    out[static_cast<size_t>(p)].emplace_back(part(index()));
    in[static_cast<size_t>(p)].emplace_back(part(p));
  }
  exchange(out, in);
}

void Peers::broadcast(int64_t from, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  Outgoing out(static_cast<size_t>(count()));
  Incoming in(static_cast<size_t>(count()));
  for (int64_t p = 0; p < count(); ++p) {
    if (from == index() && p != from) out[static_cast<size_t>(p)].emplace_back(bytes);
  }
  if (from != index()) in[static_cast<size_t>(from)].emplace_back(bytes);
  exchange(out, in);
}

std::string Peers::of_first(std::string_view text) {
  uint64_t size = std::min(text.size(), kTextBytesMax);
  broadcast(0, std::as_writable_bytes(std::span(&size, 1)));
  TRAINYARD_CHECK(size <= kTextBytesMax, "a text of " + std::to_string(size) + " bytes");
  std::string first(text.substr(0, index() == 0 ? size : 0));
  first.resize(size);
  broadcast(0, std::as_writable_bytes(std::span(first)));
  return first;
}

bool Peers::any(bool here) {
  std::vector<std::byte> all(static_cast<size_t>(count()));
  all[static_cast<size_t>(index())] = std::byte{here};
  all_gather(all);
  return std::ranges::any_of(all, [](std::byte b) { return b != std::byte{0}; });
}

std::vector<std::string> Peers::all_texts(std::string_view here) {
  struct Text {
    uint64_t size = 0;
    std::array<char, kTextOfEachMax> bytes{};
  };
  std::vector<Text> all(static_cast<size_t>(count()));
  Text& mine = all[static_cast<size_t>(index())];
  mine.size = std::min(here.size(), kTextOfEachMax);
  std::ranges::copy(here.substr(0, mine.size), mine.bytes.begin());
  all_gather(std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (const Text& text : all) {
    TRAINYARD_CHECK(text.size <= kTextOfEachMax,
                    "a text of " + std::to_string(text.size) + " bytes");
    texts.emplace_back(text.bytes.data(), text.size);
  }
  return texts;
}

void Peers::check_for_ended() {
  for (int64_t p = 0; p < count(); ++p) {
    if (p == index()) continue;
    PeerLink& link = *lines_[static_cast<size_t>(p)].link;
    pollfd polled{link.fd(), POLLRDHUP, 0};
    // If the other end has closed the connection, nobody waits for the data that is still in it.
    if (::poll(&polled, 1, 0) > 0 && link.drain_to_end()) lose(p);
  }
}

void Peers::check() {
  if (lost_.has_value()) throw RankLost(*lost_);
  if (aborted_) return;
  try {
    check_for_ended();
  } catch (const RankLost& e) {
    lost_ = e;
    throw;
  }
}

void Peers::abort() noexcept {
  aborted_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

int64_t Peers::moved_bytes() const {
  int64_t moved = 0;
  for (const Line& line : lines_) moved += line.link != nullptr ? line.link->moved_bytes() : 0;
  return moved;
}

void Peers::close_all() noexcept {
  for (const Line& line : lines_) {
    if (line.link == nullptr) continue;
    line.link->close_orderly();
    line.link->shut_down();
  }
}

}  // namespace trainyard
