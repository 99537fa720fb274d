// Tests of the progress display: its text for terminals of each width, how often it is redrawn, and
// the lines written to a pipe.
#include "client/cli/progress.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>

namespace trainyard::cli {
namespace {

ProgressState half_way() {
  ProgressState s;
  s.title = "digits-1";
  s.step = 132;
  s.steps_total = 264;
  s.steps_per_epoch = 22;
  s.samples_per_second = 28'214;
  s.eta_seconds = 3.04;
  s.metrics = {{"train/loss", 0.012513}, {"train/accuracy", 0.984375}, {"val/accuracy", 0.98888}};
  return s;
}

TEST(Progress, AWideTerminalShowsEverything) {
  EXPECT_EQ(render_bar(half_way(), 160, false, false),
            "digits-1  [############............]  50%   step 132/264  epoch 6/12   28.2k "
            "samples/s  ETA 3.0 s  "
            "loss 0.01251   acc 0.984  val acc 0.989");
}

// The bar must not move when numbers get shorter or vanish.
TEST(Progress, TheBarDoesNotMoveWhenNumbersChange) {
  for (const int width : {60, 80, 100, 120, 160}) {
    ProgressState s = half_way();
    const size_t end = render_bar(s, width, false, false).find(']');
    for (const int64_t step : {1, 9, 10, 99, 100, 263, 264}) {
      s.step = step;
      s.eta_seconds = step == 264 ? -1 : static_cast<double>(264 - step) / 10;
      s.samples_per_second = step < 10 ? 0 : 28'000;
      s.metrics["train/loss"] = 1.0 / static_cast<double>(step);
      EXPECT_EQ(render_bar(s, width, false, false).find(']'), end) << width << " " << step;
    }
  }
}

TEST(Progress, UnicodeBarsFillByEighths) {
  ProgressState s = half_way();
  s.step = 1;
  s.steps_total = 100;
  EXPECT_NE(render_bar(s, 160, true, false).find("▕▏                       ▏"), std::string::npos);
  s.step = 100;
  EXPECT_NE(render_bar(s, 160, true, false)
                .find("▕"
                      "████████████████████████"
                      "▏  100%"),
            std::string::npos)
      << render_bar(s, 160, true, false);
}

TEST(Progress, EveryWidthIsRespectedAndThePercentageIsDroppedLast) {
  for (int width = 1; width < 170; ++width) {
    for (const bool utf8 : {false, true}) {
      const std::string bar = render_bar(half_way(), width, utf8, false);
      EXPECT_LE(display_width(bar), width) << bar;
      if (width >= 3) {
        EXPECT_NE(bar.find("50%"), std::string::npos) << width;
      }
    }
  }
  const std::string narrow = render_bar(half_way(), 60, false, false);
  EXPECT_NE(narrow.find("loss 0.01251"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("val acc 0.989"), std::string::npos) << narrow;
  EXPECT_EQ(narrow.find("samples/s"), std::string::npos) << narrow;
}

TEST(Progress, NoDataYetIsNoDivisionByZero) {
  ProgressState s;
  EXPECT_EQ(render_line(s), "0%");
  s.metrics = {{"train/loss", std::nan("")}};
  EXPECT_EQ(render_line(s), "0%  loss nan");
}

class Sink {
 public:
  Sink(bool live, int columns) {
    sink.live = live;
    sink.width = [columns] { return columns; };
    sink.write = [this](std::string_view text) {
      out += text;
      ++writes;
    };
    sink.now = [this] { return now; };
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  ProgressSink sink;
  std::string out;
  int writes = 0;
  double now = 100;
};

TEST(Progress, ATerminalIsRedrawnAtMostTenTimesASecond) {
  Sink s(true, 100);
  Progress progress("j", s.sink);
  progress.plan(1000, 100, 64);
  progress.begin(0, 0);
  for (int step = 1; step <= 1000; ++step) {  // a thousand updates in one second
    s.now = 100 + step * 0.001;
    progress.metric("train/loss", step, 1.0 / step);
    progress.update(step * 0.001);
  }
  EXPECT_LE(s.writes, 11);
  EXPECT_GE(s.writes, 9);
  EXPECT_EQ(s.out.find('\n'), std::string::npos) << "the bar is drawn over itself";
  progress.finish();
  EXPECT_NE(s.out.find("step 1000/1000"), std::string::npos) << "the end is always shown";
  EXPECT_EQ(s.out.back(), '\n');
}

TEST(Progress, TheRestIsTheServersEstimateIfThereIsOne) {
  Sink s(false, 0);
  Progress progress("j", s.sink);
  progress.plan(1000, 100, 64);
  progress.begin(1000, 0);
  progress.metric("train/loss", 100, 0.5);
  progress.update(1010);
  EXPECT_DOUBLE_EQ(progress.state().eta_seconds, 90) << "by the rate of the last steps";
  progress.expect_end(1030);
  progress.metric("train/loss", 110, 0.5);
  progress.update(1012);
  EXPECT_DOUBLE_EQ(progress.state().eta_seconds, 18);
  progress.begin(1020, 0);
  progress.metric("train/loss", 100, 0.5);
  progress.update(1030);
  EXPECT_DOUBLE_EQ(progress.state().eta_seconds, 90) << "an estimate holds for its attempt";
}

TEST(Progress, AnEarlyEndIsReportedWithTheResultsMetrics) {
  Sink s(true, 100);
  Progress progress("j", s.sink);
  progress.plan(1000, 100, 64);
  progress.begin(0, 0);
  progress.metric("train/loss", 90, 0.5);
  progress.metric("val/loss", 90, 0.75);
  progress.update(1);
  s.out.clear();
  progress.succeed({{"val/loss", 0.625}});
  progress.finish();
  EXPECT_NE(s.out.find("stopped early"), std::string::npos) << s.out;
  EXPECT_NE(s.out.find("val loss 0.625"), std::string::npos) << s.out;
  EXPECT_EQ(s.out.find('%'), std::string::npos) << s.out;
  EXPECT_EQ(s.out.find("ETA"), std::string::npos) << s.out;
}

TEST(Progress, ANoteIsPrintedAboveTheBarInOneWrite) {
  Sink s(true, 60);
  Progress progress("j", s.sink);
  progress.plan(10, 5, 1);
  progress.begin(0, 0);
  progress.metric("train/loss", 1, 2.0);
  progress.update(1);
  s.out.clear();
  s.writes = 0;
  progress.note(1, Style::kPlain, "careful \x1b[2J");
  EXPECT_EQ(s.writes, 1);
  EXPECT_EQ(s.out.substr(0, 20), "\rcareful \\x1b[2J\x1b[K\n") << s.out;
  EXPECT_NE(s.out.find("10%"), std::string::npos);
}

TEST(Progress, APipeGetsALineEveryTenPercentOrTenSeconds) {
  Sink s(false, 0);
  Progress progress("j", s.sink);
  progress.plan(1000, 100, 64);
  progress.begin(1'700'000'000, 0);
  for (int step = 1; step <= 1000; ++step) {
    progress.metric("train/loss", step, 0.5);
    progress.update(1'700'000'000 + step * 0.001);
  }
  EXPECT_EQ(s.writes, 10) << s.out;
  EXPECT_EQ(s.out.substr(0, s.out.find('\n')),
            "22:13:20  10%  step 100/1000  epoch 1/10  64.0k samples/s  ETA 0.9 s  loss 0.5");
  EXPECT_EQ(s.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(s.out.find('\r'), std::string::npos);

  Sink slow(false, 0);
  Progress long_run("j", slow.sink);
  long_run.plan(1'000'000, 100, 64);
  long_run.begin(0, 0);
  for (int second = 1; second <= 60; ++second) {
    long_run.metric("train/loss", second, 0.5);
    long_run.update(second);
  }
  EXPECT_EQ(slow.writes, 6) << slow.out;
}

TEST(Progress, ARestartFromACheckpointMeasuresFromThere) {
  Sink s(false, 0);
  Progress progress("j", s.sink);
  progress.plan(100, 10, 10);
  progress.begin(0, 0);
  progress.metric("train/loss", 50, 0.5);
  progress.update(5);  // 10 steps per second
  EXPECT_DOUBLE_EQ(progress.state().samples_per_second, 100);
  progress.begin(60, 40);  // the lost minute must not lower the rate
  EXPECT_EQ(progress.state().step, 40);
  progress.metric("train/loss", 60, 0.5);
  progress.update(62);
  EXPECT_DOUBLE_EQ(progress.state().samples_per_second, 100);
  EXPECT_DOUBLE_EQ(progress.state().eta_seconds, 4);
}

}  // namespace
}  // namespace trainyard::cli
