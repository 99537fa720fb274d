#include "src/data/row_copies.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainyard {
namespace {

constexpr int64_t kPercentMin = 1;        // copies, in percent of the held-out rows
constexpr int64_t kChancePercentMax = 5;  // copies with different targets, in percent of the copies
constexpr size_t kArrays = 5;

/// The bytes of a row in each of the arrays.
using RowBytes = std::array<std::string_view, kArrays>;

class Rows {
 public:
  Rows(const DatasetSchema& schema, const Partition& p) : p_(p) {
    add(std::as_bytes(p.numeric), schema.numeric_columns() * 4);
    add(std::as_bytes(p.category), schema.categorical_columns() * 4);
    const bool image = schema.kind == DatasetSchema::Kind::kImage;
    const int64_t pixels = image ? schema.image.elements() : 0;
    add(std::as_bytes(p.image_u8), pixels);
    add(std::as_bytes(p.image_f32), pixels * 4);
    add(std::as_bytes(p.tokens), schema.text.max_length * 4);
  }
  RowBytes features(int64_t row) const {
    RowBytes bytes;
    for (size_t i = 0; i < kArrays; ++i) {
      if (arrays_[i].empty()) continue;
      bytes[i] = arrays_[i].substr(static_cast<size_t>(row) * widths_[i], widths_[i]);
    }
    return bytes;
  }
  double target(int64_t row) const {
    const auto at = static_cast<size_t>(row);
    return p_.target_class.empty() ? static_cast<double>(p_.target_numeric[at])
                                   : static_cast<double>(p_.target_class[at]);
  }

 private:
  void add(std::span<const std::byte> bytes, int64_t width) {
    arrays_[count_] = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    widths_[count_++] = static_cast<size_t>(width);
  }

  const Partition& p_;
  std::array<std::string_view, kArrays> arrays_;
  std::array<size_t, kArrays> widths_ = {};
  size_t count_ = 0;
};

size_t hash_of(const RowBytes& row) {
  size_t hash = 0;
  for (const std::string_view part : row) {
    hash = hash * 0x9e3779b97f4a7c15U + std::hash<std::string_view>()(part);
  }
  return hash;
}

/// Held-out rows with equal features.
struct Group {
  int64_t first = 0;             // the first of these rows
  bool seen = false;             // a training row has the same features
  std::optional<double> target;  // the target of these training rows, if all have the same one
};

}  // namespace

bool RowCopies::matter() const {
  return copies > 0 && copies * 100 >= rows * kPercentMin &&
         (copies - same_target) * 100 <= copies * kChancePercentMax;
}

int64_t feature_bytes(const DatasetSchema& schema) {
  if (schema.kind == DatasetSchema::Kind::kImage) {
    return schema.image.elements() * static_cast<int64_t>(size_of(schema.image_dtype));
  }
  if (schema.kind == DatasetSchema::Kind::kText) return schema.text.max_length * 4;
  return (schema.numeric_columns() + schema.categorical_columns()) * 4;
}

RowCopies count_copies(const DatasetSchema& schema, const Partition& seen,
                       std::span<const int64_t> seen_rows, const Partition& held_out,
                       std::span<const int64_t> held_out_rows) {
  const Rows seen_table(schema, seen), held_out_table(schema, held_out);
  std::vector<Group> groups;
  std::vector<size_t> group_of;
  std::unordered_multimap<size_t, size_t> by_hash;
  by_hash.reserve(held_out_rows.size());
  const auto find = [&](const RowBytes& row, size_t hash) -> Group* {
    const auto [begin, end] = by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      Group& group = groups[it->second];
      if (held_out_table.features(group.first) == row) return &group;
    }
    return nullptr;
  };
  for (const int64_t row : held_out_rows) {
    const RowBytes features = held_out_table.features(row);
    const size_t hash = hash_of(features);
    Group* group = find(features, hash);
    if (group == nullptr) {
      by_hash.emplace(hash, groups.size());
      group = &groups.emplace_back(Group{row, false, std::nullopt});
    }
    group_of.push_back(static_cast<size_t>(group - groups.data()));
  }
  for (const int64_t row : seen_rows) {
    const RowBytes features = seen_table.features(row);
    Group* const group = find(features, hash_of(features));
    if (group == nullptr) continue;
    const double target = seen_table.target(row);
    if (!group->seen) {
      group->target = target;
    } else if (group->target != target) {
      group->target = std::nullopt;
    }
    group->seen = true;
  }
  RowCopies copies;
  copies.rows = std::ssize(held_out_rows);
  for (size_t i = 0; i < held_out_rows.size(); ++i) {
    const Group& group = groups[group_of[i]];
    copies.copies += group.seen ? 1 : 0;
    copies.same_target += group.target == held_out_table.target(held_out_rows[i]) ? 1 : 0;
  }
  return copies;
}

}  // namespace trainyard
