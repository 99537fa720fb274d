#include "client/cli/sharding_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/cli/forecast_view.h"
#include "client/cli/output.h"
#include "client/cli/table.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

/// Returns text such as "none" or "optimizer, head".
std::string shard_text(const v1::ShardingRow& row) {
  std::vector<std::string> parts;
  for (const int part : row.shard()) {
    parts.push_back(lower(v1::Resources::Shard_Name(static_cast<v1::Resources::Shard>(part))));
  }
  return joined(parts, ", ");
}

std::string recompute_text(const v1::ShardingRow& row) {
  return lower(v1::Recipe::Recompute_Name(row.recompute()));
}

Cell why_cell(const v1::ShardingRow& row) {
  const auto cell = [&](std::string text, const char* before_message, Style style) {
    if (!row.message().empty()) text += before_message + row.message();
    if (row.as_written()) text += " (as written)";
    return Cell(std::move(text), style);
  };
  switch (row.verdict()) {
    case v1::ShardingRow::CHOSEN:
      return cell("chosen", ": ", Style::kGood);
    case v1::ShardingRow::FITS:
      return cell("fits", ", ", Style::kPlain);
    case v1::ShardingRow::CHANGES_RESULT:
      return cell("changes the result", ": ", Style::kNotice);
    default:
      return cell("", "", Style::kBad);
  }
}

bool is_refused(const v1::ShardingRow& row) { return row.verdict() == v1::ShardingRow::REFUSED; }

/// Returns the settings of a refused plan, "shard head, recompute full"; settings with their
/// default values are omitted.
std::string refused_text(const v1::ShardingRow& row) {
  std::string text = "shard " + shard_text(row);
  if (row.recompute() != v1::Recipe::NONE) text += ", recompute " + recompute_text(row);
  if (row.accumulate_steps() > 1) {
    text += ", accumulate_steps " + std::to_string(row.accumulate_steps());
  }
  return text;
}

}  // namespace

std::string render_sharding_plans(const v1::JobPlan& plan, const Terminal& out) {
  return render_sharding_plans(plan, out.colour(), out.line_width(), out.utf8());
}

std::string render_sharding_plans(const v1::JobPlan& plan, bool colour, int width, bool utf8) {
  const auto any = [&](const auto& has) { return std::ranges::any_of(plan.sharding_plans(), has); };
  const bool shards = any([](const v1::ShardingRow& row) { return row.sent_bytes() > 0; });
  const bool is_timed = any([](const v1::ShardingRow& row) { return row.step_seconds() > 0; });
  std::vector<Column> columns;
  if (shards) columns.push_back({"SHARD"});
  columns.push_back({"RECOMPUTE"});
  columns.push_back({"MICRO", true});
  columns.push_back({"MEMORY", true});
  if (is_timed) columns.push_back({"STEP", true});
  if (shards) columns.push_back({"SENT", true});
  columns.push_back({"WHY", false, /*shortens=*/true});

  Table table(columns);
  std::vector<std::pair<std::string, Cell>> refused;
  for (const v1::ShardingRow& row : plan.sharding_plans()) {
    if (is_refused(row)) {
      refused.emplace_back(refused_text(row), Cell(row.message(), Style::kDim));
      continue;
    }
    std::vector<Cell> cells;
    if (shards) cells.emplace_back(shard_text(row));
    cells.emplace_back(recompute_text(row));
    cells.emplace_back(std::to_string(row.accumulate_steps()));
    cells.emplace_back(human_bytes(row.bytes()));
    if (is_timed) cells.emplace_back(step_text(row.step_seconds()));
    if (shards) cells.emplace_back(human_bytes(row.sent_bytes()));
    cells.push_back(why_cell(row));
    table.add(std::move(cells));
  }
  std::string text = table.render(colour, width, utf8);
  if (!refused.empty()) text += "\nrefused\n" + render_fields(refused, colour, width);
  const int64_t available = plan.sharding_plans(0).bytes_available();
  std::string below;
  if (available > 0) {
    below =
        human_bytes(available) + " of memory is available" + (shards ? " on each device. " : ". ");
  }
  below += plan.sharding_plans_basis();
  if (!below.empty()) text += "\n" + wrapped(safe_text(below), width) + "\n";
  if (!plan.fit().fits()) {
    text +=
        "\n" + paint(colour, Style::kBad, wrapped(safe_text(plan.fit().message()), width)) + "\n";
  }
  return text;
}

}  // namespace trainyard::cli
