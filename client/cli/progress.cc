#include "client/cli/progress.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <sstream>
#include <vector>

#include "client/cli/output.h"

namespace trainyard::cli {
namespace {

constexpr double kPaceSeconds = 8;  // seconds over which the rate is averaged
constexpr int kBarColumns = 24;
constexpr int kBarColumnsMin = 8;

struct Segment {
  int priority;  // if there is no room, the segments with the highest number are dropped first
  std::string text;
  // minimum width in a bar, so that the bar does not jump while numbers grow and shrink
  int columns = 0;
  int width() const { return std::max(columns, display_width(text)); }
};

const double* find_metric(const ProgressState& state, const char* key) {
  const auto found = state.metrics.find(key);
  return found == state.metrics.end() ? nullptr : &found->second;
}

std::string percent_done(double share) {
  return std::to_string(static_cast<int>(std::floor(share * 100 + 1e-9))) + "%";
}

std::string fraction_text(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

/// Returns the segments in display order. A segment whose value is still unknown is empty but keeps
/// its position.
std::vector<Segment> segments_of(const ProgressState& s) {
  const auto digits = [](int64_t value) { return static_cast<int>(std::to_string(value).size()); };
  std::vector<Segment> out;
  const bool early = s.succeeded && s.step < s.steps_total;
  out.push_back({0, early ? "stopped early" : percent_done(s.share()), 4});
  if (s.steps_total > 0) {
    out.push_back({3, "step " + std::to_string(s.step) + "/" + std::to_string(s.steps_total),
                   6 + 2 * digits(s.steps_total)});
  }
  if (s.steps_per_epoch > 0 && s.steps_total > 0) {
    const int64_t epochs = (s.steps_total + s.steps_per_epoch - 1) / s.steps_per_epoch;
    const int64_t epoch =
        std::clamp<int64_t>((s.step + s.steps_per_epoch - 1) / s.steps_per_epoch, 1, epochs);
    out.push_back({4, "epoch " + std::to_string(epoch) + "/" + std::to_string(epochs),
                   7 + 2 * digits(epochs)});
  }
  const bool paced = s.samples_per_second > 0;
  out.push_back({6, paced ? human_number(s.samples_per_second, true) + " samples/s" : "", 15});
  const bool ahead = !s.succeeded && s.eta_seconds >= 0 && s.step < s.steps_total;
  out.push_back(
      {2, ahead ? "ETA " + human_duration(s.eta_seconds) : "", s.eta_seconds < 120 ? 9 : 15});
  if (const double* loss = find_metric(s, "train/loss")) {
    out.push_back({1, "loss " + human_number(*loss), 13});
  }
  if (const double* right = find_metric(s, "train/accuracy")) {
    out.push_back({5, "acc " + fraction_text(*right)});
  }
  if (const double* right = find_metric(s, "val/accuracy")) {
    out.push_back({1, "val acc " + fraction_text(*right)});
  } else if (const double* mae = find_metric(s, "val/mae")) {
    out.push_back({1, "val MAE " + human_number(*mae), 16});
  } else if (const double* loss = find_metric(s, "val/loss")) {
    out.push_back({1, "val loss " + human_number(*loss), 17});
  }
  return out;
}

std::string bar_of(double share, int columns, bool utf8) {
  const double cells = share * columns;
  const int full = std::min(columns, static_cast<int>(cells));
  if (!utf8) {
    return "[" + std::string(static_cast<size_t>(full), '#') +
           std::string(static_cast<size_t>(columns - full), '.') + "]";
  }
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string out = "▕";
  for (int i = 0; i < full; ++i) out += "█";
  int used = full;
  const int eighths = full < columns ? static_cast<int>((cells - full) * 8) : 0;
  if (eighths > 0) {
    out += kParts[eighths];
    ++used;
  }
  return out + std::string(static_cast<size_t>(columns - used), ' ') + "▏";
}

}  // namespace

double ProgressState::share() const {
  if (steps_total <= 0) return 0;
  return std::clamp(static_cast<double>(step) / static_cast<double>(steps_total), 0.0, 1.0);
}

std::string render_bar(const ProgressState& state, int width, bool utf8, bool colour) {
  std::vector<Segment> segments = segments_of(state);
  std::string title = safe_text(state.title);
  int bar = kBarColumns;
  bool with_title = !title.empty();
  const auto columns = [&] {
    int sum = bar + 2 + (with_title ? display_width(title) + 2 : 0);
    for (const Segment& s : segments) sum += 2 + s.width();
    return sum;
  };
  while (columns() > width) {
    const auto least = std::max_element(
        segments.begin(), segments.end(),
        [](const Segment& a, const Segment& b) { return a.priority < b.priority; });
    if (with_title && (segments.size() <= 4 || least->priority <= 3)) {
      with_title = false;
    } else if (bar > kBarColumnsMin && least->priority <= 4) {
      bar = kBarColumnsMin;
    } else if (least->priority > 0) {
      segments.erase(least);
    } else if (bar > 0) {
      bar = 0;
    } else {
      break;
    }
    if (bar == 0)
      return safe_text(segments.front().text).substr(0, static_cast<size_t>(std::max(0, width)));
  }
  std::string out = with_title ? paint(colour, Style::kBold, title) + "  " : "";
  out += paint(colour, Style::kBusy, bar_of(state.share(), bar, utf8));
  for (const Segment& s : segments) {
    out += "  " + s.text + std::string(static_cast<size_t>(s.width() - display_width(s.text)), ' ');
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string render_line(const ProgressState& state) {
  std::string out;
  for (const Segment& s : segments_of(state)) {
    if (!s.text.empty()) out += (out.empty() ? "" : "  ") + s.text;
  }
  return out;
}

Progress::Progress(std::string title, ProgressSink sink) : sink_(std::move(sink)) {
  state_.title = std::move(title);
}

void Progress::plan(int64_t steps_total, int64_t steps_per_epoch, int64_t batch_size) {
  state_.steps_total = steps_total;
  state_.steps_per_epoch = steps_per_epoch;
  batch_size_ = batch_size;
}

void Progress::begin(double time_s, int64_t step) {
  state_.step = step;
  state_.samples_per_second = 0;
  state_.eta_seconds = -1;
  expected_end_s_ = 0;
  pace_ = {{time_s, step}};
  line_time_ = time_s;
  line_share_ = state_.share();
}

void Progress::metric(const std::string& key, int64_t step, double value) {
  state_.metrics[key] = value;
  if (key.starts_with("train/")) state_.step = std::max(state_.step, step);
}

void Progress::measure(double time_s) {
  if (pace_.empty() || state_.step > pace_.back().second) pace_.emplace_back(time_s, state_.step);
  while (pace_.size() > 2 && pace_.back().first - pace_.front().first > kPaceSeconds)
    pace_.pop_front();
  const double seconds = pace_.back().first - pace_.front().first;
  const auto steps = static_cast<double>(pace_.back().second - pace_.front().second);
  if (seconds <= 0 || steps <= 0) return;
  const double rate = steps / seconds;
  state_.samples_per_second = rate * static_cast<double>(batch_size_);
  state_.eta_seconds = static_cast<double>(state_.steps_total - state_.step) / rate;
  if (expected_end_s_ > 0) state_.eta_seconds = std::max(0.0, expected_end_s_ - time_s);
}

void Progress::expect_end(double time_s) { expected_end_s_ = time_s; }

void Progress::update(double time_s) {
  measure(time_s);
  if (sink_.live) {
    if (sink_.now() - drawn_at_ >= kRedrawSeconds) draw();
    return;
  }
  const double share = state_.share();
  const bool far = share - line_share_ >= kLineShare - 1e-9;
  const bool long_ago = time_s - line_time_ >= kLineSeconds;
  if (!far && !long_ago) return;
  line_time_ = time_s;
  // Rounding down to multiples of 10 % keeps one late line from delaying all later ones.
  line_share_ = std::floor(share / kLineShare + 1e-9) * kLineShare;
  sink_.write(clock_time(time_s) + "  " + render_line(state_) + "\n");
}

void Progress::note(double time_s, Style style, std::string_view text) {
  if (!sink_.live) {
    sink_.write(clock_time(time_s) + "  " + paint(sink_.colour, style, safe_text(text)) + "\n");
    return;
  }
  // A single write avoids flicker: the lines replace the bar, and the bar is drawn again below
  // them.
  std::string out = "\r";
  std::istringstream lines(wrapped(safe_text(text), sink_.width()));
  for (std::string line; std::getline(lines, line);) {
    out += paint(sink_.colour, style, line) + "\x1b[K\n";
  }
  if (drawn_) {
    out += render_bar(state_, std::max(1, sink_.width() - 1), sink_.utf8, sink_.colour) + "\x1b[K";
  }
  sink_.write(out);
}

void Progress::draw() {
  drawn_at_ = sink_.now();
  drawn_ = true;
  sink_.write("\r" + render_bar(state_, std::max(1, sink_.width() - 1), sink_.utf8, sink_.colour) +
              "\x1b[K");
}

void Progress::succeed(const std::map<std::string, double>& metrics) {
  for (const auto& [key, value] : metrics) state_.metrics[key] = value;
  state_.succeeded = true;
}

void Progress::finish() {
  if (!sink_.live) return;
  if (drawn_) {
    draw();
    sink_.write("\n");
  }
  drawn_ = false;
}

std::string clock_time(double time_s) {
  const auto seconds = static_cast<std::time_t>(time_s);
  std::tm fields{};
  ::localtime_r(&seconds, &fields);
  char text[16];
  return std::strftime(text, sizeof text, "%H:%M:%S", &fields) > 0 ? text : "";
}

}  // namespace trainyard::cli
