// Tests of the table of sharding plans that users see, in terminals of 80 and of 120 columns.
#include "client/cli/sharding_view.h"

#include <gtest/gtest.h>

#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Row {
  std::vector<v1::Resources::Shard> shard;
  v1::Recipe::Recompute recompute = v1::Recipe::NONE;
  int64_t accumulate_steps = 1;
  v1::ShardingRow::Verdict verdict = v1::ShardingRow::FITS;
  std::string message;
  int64_t bytes = 0;
  double step_seconds = 0;
  int64_t sent_bytes = 0;
};

v1::ShardingRow& add(v1::JobPlan& plan, const Row& row) {
  v1::ShardingRow& to = *plan.add_sharding_plans();
  for (const v1::Resources::Shard part : row.shard) to.add_shard(part);
  to.set_recompute(row.recompute);
  to.set_accumulate_steps(row.accumulate_steps);
  to.set_verdict(row.verdict);
  to.set_message(row.message);
  to.set_bytes(row.bytes);
  to.set_bytes_available(80 * 1024 * kMiB);
  to.set_step_seconds(row.step_seconds);
  to.set_sent_bytes(row.sent_bytes);
  return to;
}

v1::JobPlan of_gpus() {
  using v1::ShardingRow, v1::Recipe, v1::Resources;
  v1::JobPlan plan;
  plan.mutable_fit()->set_fits(true);
  add(plan, {{Resources::OPTIMIZER},
             Recipe::NONE,
             1,
             ShardingRow::CHOSEN,
             "changes least of those about as fast as the fastest",
             61'000 * kMiB,
             0.412,
             870 * kMiB});
  add(plan, {{Resources::OPTIMIZER, Resources::HEAD},
             Recipe::NONE,
             1,
             ShardingRow::FITS,
             "3% faster, within the forecast's error",
             52'000 * kMiB,
             0.4,
             610 * kMiB});
  add(plan, {{Resources::NONE},
             Recipe::FULL,
             4,
             ShardingRow::FITS,
             "31% slower",
             79'000 * kMiB,
             0.54,
             870 * kMiB});
  add(plan, {{Resources::NONE},
             Recipe::BLOCKS,
             1,
             ShardingRow::DOES_NOT_FIT,
             "2.34 GiB too large",
             84'300 * kMiB,
             0,
             870 * kMiB});
  add(plan, {{Resources::NONE},
             Recipe::NONE,
             1,
             ShardingRow::DOES_NOT_FIT,
             "17.6 GiB too large",
             99'900 * kMiB,
             0,
             870 * kMiB})
      .set_as_written(true);
  add(plan,
      {{Resources::HEAD},
       Recipe::NONE,
       1,
       ShardingRow::REFUSED,
       "resources.shard: head has a table that an embedding has, too, expected shard: optimizer "
       "or none",
       0,
       0,
       0});
  plan.set_sharding_plans_basis(
      "Steps are forecast from the rates measured on devices/gpu-0; the link between its GPUs is "
      "not measured: 20 GB/s are assumed, 8 to 300 in the ranges.");
  return plan;
}

TEST(ShardingView, AWideTerminalShowsTheReasons) {
  EXPECT_EQ(
      render_sharding_plans(of_gpus(), false, 120, true),
      "SHARD            RECOMPUTE  MICRO    MEMORY    STEP     SENT  WHY\n"
      "optimizer        none           1  59.6 GiB  412 ms  870 MiB  chosen: changes least of "
      "those "
      "about as fast as the faste…\n"
      "optimizer, head  none           1  50.8 GiB  400 ms  610 MiB  fits, 3% faster, within the "
      "forecast's error\n"
      "none             full           4  77.1 GiB  540 ms  870 MiB  fits, 31% slower\n"
      "none             blocks         1  82.3 GiB          870 MiB  2.34 GiB too large\n"
      "none             none           1  97.6 GiB          870 MiB  17.6 GiB too large (as "
      "written)\n"
      "\n"
      "refused\n"
      "shard head:  resources.shard: head has a table that an embedding has, too, expected shard: "
      "optimizer or none\n"
      "\n"
      "80 GiB of memory is available on each device. Steps are forecast from the rates measured on "
      "devices/gpu-0; the link\n"
      "between its GPUs is not measured: 20 GB/s are assumed, 8 to 300 in the ranges.\n");
}

TEST(ShardingView, EightyColumnsAreEnough) {
  const std::string text = render_sharding_plans(of_gpus(), false, 80, true);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(display_width(text.substr(begin, end - begin)), 80)
        << text.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_NE(text.find("fits, 31% slower\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2.34 GiB too"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer or none"), std::string::npos) << "a refusal is whole\n" << text;
}

TEST(ShardingView, OneDeviceWithoutRatesHasFewerColumns) {
  v1::JobPlan plan;
  plan.mutable_fit()->set_message("the job needs 9 GiB of memory, 1 GiB more");
  add(plan, {{v1::Resources::NONE},
             v1::Recipe::NONE,
             8,
             v1::ShardingRow::CHANGES_RESULT,
             "batch normalization computes its statistics over each micro-batch",
             900 * kMiB});
  add(plan, {{v1::Resources::NONE},
             v1::Recipe::NONE,
             1,
             v1::ShardingRow::DOES_NOT_FIT,
             "1 GiB too large",
             9000 * kMiB})
      .set_as_written(true);
  plan.set_sharding_plans_basis("The time of a step is unknown: this server measures no rates.");
  EXPECT_EQ(render_sharding_plans(plan, false, 0, false),
            "RECOMPUTE  MICRO    MEMORY  WHY\n"
            "none           8   900 MiB  changes the result: batch normalization computes its "
            "statistics over each micro-batch\n"
            "none           1  8.79 GiB  1 GiB too large (as written)\n"
            "\n"
            "80 GiB of memory is available. The time of a step is unknown: this server "
            "measures no rates.\n"
            "\n"
            "the job needs 9 GiB of memory, 1 GiB more\n");
}

}  // namespace
}  // namespace trainyard::cli
