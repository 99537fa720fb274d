#include "server/planning/array_members.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/philox.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

using Json = nlohmann::json;

constexpr double kWholeMax = 9007199254740992.0;  // 2^53: doubles are exact up to it

Error size_error(const std::string& field, const std::string& is) {
  return field_error("ARRAY_SIZE_INVALID", field,
                     is + ", expected at most " + std::to_string(kArrayMembersMax) +
                         " members; submit several arrays, or draw some at random");
}

/// Returns the shortest text that parses to the same number.
std::string text_of(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  TRAINYARD_CHECK(error == std::errc(), "a double has at most 24 characters");
  return {text, end};
}

Result<Json> read_json(const std::string& text, const std::string& where) {
  if (text.size() > kArrayValueBytesMax) {
    return field_error("FIELD_OUT_OF_RANGE", where,
                       "has " + human_bytes(static_cast<int64_t>(text.size())) +
                           ", expected a value of at most 64 KiB");
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return field_error(
        "FIELD_TYPE_INVALID", where,
        quoted_value(text) + " is not JSON, expected a value such as 0.1, \"adam\" or [64, 64]");
  }
  return json;
}

/// Returns the fields in the order of their names; protobuf's maps have no order.
template <typename Map>
std::map<std::string, const typename Map::mapped_type*> ordered(const Map& map) {
  std::map<std::string, const typename Map::mapped_type*> out;
  for (const auto& [key, value] : map) out.emplace(key, &value);
  return out;
}

class Expansion {
 public:
  Result<ArrayMembers> expand(const v1::ArraySpec& array) {
    const int ways = (array.grid().empty() ? 0 : 1) + (array.list().empty() ? 0 : 1) +
                     (array.has_random() ? 1 : 0);
    if (ways == 0) {
      return field_error("FIELD_REQUIRED", "array",
                         "is empty, expected one of grid, list and random");
    }
    if (ways > 1) {
      return field_error("FIELD_CONFLICT", "array",
                         "has several of grid, list and random, expected one of them");
    }
    const Status s = !array.grid().empty()   ? expand_grid(array)
                     : !array.list().empty() ? expand_list(array)
                                             : expand_random(array.random());
    if (!s.ok()) return s.error();
    return std::move(out_);
  }

 private:
  /// Returns the field with this path, after checking it against all others.
  Result<const SpecField*> add_field(const std::string& path, const std::string& where) {
    if (const auto known = by_path_.find(path); known != by_path_.end()) return known->second;
    if (std::ssize(out_.fields) >= kArrayFieldsMax) {
      return field_error("ARRAY_SIZE_INVALID", where,
                         "is one field too many: members of an array may differ in at most " +
                             std::to_string(kArrayFieldsMax));
    }
    ASSIGN_OR_RETURN(SpecField field, SpecField::parse(path, where));
    if (field.root() == "dataset" || field.root() == "after") {
      return field_error("FIELD_UNSUPPORTED", where,
                         quoted_value(path) +
                             " must be the same for all members; submit an array for "
                             "each " +
                             (field.root() == "dataset" ? "dataset" : "of them"));
    }
    for (const SpecField& other : out_.fields) {
      if (!field.overlaps(other)) continue;
      return field_error("FIELD_CONFLICT", where,
                         quoted_value(path) + " and " + quoted_value(other.path()) +
                             " overlap, expected separate fields");
    }
    out_.fields.push_back(std::move(field));
    const SpecField* added = &out_.fields.back();
    by_path_.emplace(path, added);
    return added;
  }

  Status expand_grid(const v1::ArraySpec& array) {
    struct Axis {
      const SpecField* field;
      const v1::ArrayValues* values;
      std::string where;
    };
    std::vector<Axis> axes;
    double product = 1;  // 32 factors of up to 100,000 fit
    for (const auto& [path, values] : ordered(array.grid())) {
      const std::string where = "array.grid." + path;
      ASSIGN_OR_RETURN(const SpecField* field, add_field(path, where));
      if (values->values().empty()) {
        return field_error("FIELD_REQUIRED", where, "has no values, expected a list of them");
      }
      product *= values->values_size();
      axes.push_back({field, values, where});
    }
    if (product > static_cast<double>(kArrayMembersMax)) {
      std::string factors;
      for (const Axis& axis : axes) {
        factors += (factors.empty() ? "" : " * ") + std::to_string(axis.values->values_size());
      }
      const std::string count = product < kWholeMax ? std::to_string(static_cast<int64_t>(product))
                                                    : short_number(product);
      return size_error("array.grid", axes.size() > 1
                                          ? factors + " values are " + count + " members"
                                          : count + " values are as many members");
    }
    for (const Axis& axis : axes) {
      std::set<Json> seen;
      for (int i = 0; i < axis.values->values_size(); ++i) {
        const std::string& text = axis.values->values(i);
        const std::string where = axis.where + "[" + std::to_string(i) + "]";
        ASSIGN_OR_RETURN(Json json, read_json(text, where));
        if (seen.insert(std::move(json)).second) continue;
        return field_error("FIELD_CONFLICT", where,
                           quoted_value(text) + " is given twice, expected each value once");
      }
    }
    std::vector<int> at(axes.size(), 0);
    out_.members.resize(static_cast<size_t>(product));
    for (std::vector<MemberValue>& member : out_.members) {
      for (size_t k = 0; k < axes.size(); ++k) {
        member.push_back({axes[k].field, axes[k].values->values(at[k]),
                          axes[k].where + "[" + std::to_string(at[k]) + "]"});
      }
      for (size_t k = axes.size(); k-- > 0;) {  // the last field varies fastest
        if (++at[k] < axes[k].values->values_size()) break;
        at[k] = 0;
      }
    }
    return {};
  }

  Status expand_list(const v1::ArraySpec& array) {
    if (array.list_size() > kArrayMembersMax) {
      return size_error("array.list", "has " + std::to_string(array.list_size()) + " members");
    }
    std::map<Json, int> seen;
    for (int i = 0; i < array.list_size(); ++i) {
      const std::string where = "array.list[" + std::to_string(i) + "]";
      if (array.list(i).values().empty()) {
        return field_error("FIELD_REQUIRED", where, "has no values, expected fields with values");
      }
      std::vector<MemberValue>& member = out_.members.emplace_back();
      Json all = Json::object();
      for (const auto& [path, text] : ordered(array.list(i).values())) {
        const std::string place = where + "." + path;
        ASSIGN_OR_RETURN(const SpecField* field, add_field(path, place));
        ASSIGN_OR_RETURN(all[path], read_json(*text, place));
        member.push_back({field, *text, place});
      }
      const auto [first, fresh] = seen.emplace(std::move(all), i);
      if (!fresh) {
        return field_error("FIELD_CONFLICT", where,
                           "is the same as member " + std::to_string(first->second) +
                               ", expected each member once");
      }
    }
    return {};
  }

  Status expand_random(const v1::ArrayRandom& random) {
    if (random.count() > kArrayMembersMax) {
      return size_error("array.random.count", std::to_string(random.count()) + " is out of range");
    }
    if (random.count() < 1) {
      return field_error("ARRAY_SIZE_INVALID", "array.random.count",
                         std::to_string(random.count()) + " is out of range, expected 1.." +
                             std::to_string(kArrayMembersMax));
    }
    if (random.values().empty()) {
      return field_error("FIELD_REQUIRED", "array.random.values",
                         "is missing, expected fields, each with a distribution");
    }
    out_.members.resize(static_cast<size_t>(random.count()));
    for (const auto& [path, draw] : ordered(random.values())) {
      const std::string where = "array.random.values." + path;
      ASSIGN_OR_RETURN(const SpecField* field, add_field(path, where));
      if (Status s = check_draw(*draw, where); !s.ok()) return s;
      const uint32_t stream = stream_of(path);
      for (size_t i = 0; i < out_.members.size(); ++i) {
        out_.members[i].push_back({field, draw_value(*draw, random.seed(), stream, i), where});
      }
    }
    return {};
  }

  static Status check_range(const v1::ArrayRange& range, const std::string& where, bool above_zero,
                            bool whole) {
    if (!range.has_low() || !range.has_high()) {
      return field_error("FIELD_REQUIRED", where + (range.has_low() ? ".high" : ".low"),
                         "is missing, expected a number");
    }
    for (const auto& [name, value] :
         {std::pair("low", range.low()), std::pair("high", range.high())}) {
      const std::string field = where + "." + name;
      if (!std::isfinite(value)) {
        return field_error("FIELD_OUT_OF_RANGE", field, "is not a finite number");
      }
      if (whole && (value != std::floor(value) || std::abs(value) > kWholeMax)) {
        return field_error("FIELD_OUT_OF_RANGE", field,
                           text_of(value) + " is not a whole number from -2^53 to 2^53");
      }
      if (above_zero && value <= 0) {
        return field_error(
            "FIELD_OUT_OF_RANGE", field,
            text_of(value) + " is out of range, expected more than 0 for log_uniform");
      }
    }
    if (range.low() < range.high()) {
      if (std::isfinite(range.high() - range.low())) return {};
      return field_error("FIELD_OUT_OF_RANGE", where, "the range is too wide for a 64-bit number");
    }
    return field_error("FIELD_OUT_OF_RANGE", where + ".high",
                       text_of(range.high()) + " is out of range, expected more than the low end " +
                           text_of(range.low()));
  }

  static Status check_draw(const v1::ArrayDraw& draw, const std::string& where) {
    switch (draw.kind_case()) {
      case v1::ArrayDraw::kUniform:
        return check_range(draw.uniform(), where + ".uniform", false, false);
      case v1::ArrayDraw::kLogUniform:
        return check_range(draw.log_uniform(), where + ".log_uniform", true, false);
      case v1::ArrayDraw::kIntegers:
        return check_range(draw.integers(), where + ".integers", false, true);
      case v1::ArrayDraw::kChoice:
        break;
      case v1::ArrayDraw::KIND_NOT_SET:
        return field_error("FIELD_REQUIRED", where,
                           "is empty, expected one of uniform, log_uniform, integers and choice");
    }
    const std::string field = where + ".choice";
    if (draw.choice().values().empty()) {
      return field_error("FIELD_REQUIRED", field, "has no values, expected a list of them");
    }
    for (int i = 0; i < draw.choice().values_size(); ++i) {
      const auto json = read_json(draw.choice().values(i), field + "[" + std::to_string(i) + "]");
      if (!json.ok()) return json.error();
    }
    return {};
  }

  static std::string draw_value(const v1::ArrayDraw& draw, uint64_t seed, uint32_t stream,
                                size_t member) {
    const math::Philox4 block = math::philox_block(seed, stream, 0, member);
    const uint64_t bits = (uint64_t{block.v[0]} << 32) | block.v[1];
    const double share = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
    const auto below = [&](uint64_t count) {
      return std::min(static_cast<uint64_t>(share * static_cast<double>(count)), count - 1);
    };
    switch (draw.kind_case()) {
      case v1::ArrayDraw::kUniform: {
        const v1::ArrayRange& r = draw.uniform();
        return text_of(std::min(r.low() + (r.high() - r.low()) * share, r.high()));
      }
      case v1::ArrayDraw::kLogUniform: {
        const v1::ArrayRange& r = draw.log_uniform();
        const double low = std::log(r.low());
        return text_of(
            std::clamp(std::exp(low + (std::log(r.high()) - low) * share), r.low(), r.high()));
      }
      case v1::ArrayDraw::kIntegers: {
        const auto low = static_cast<int64_t>(draw.integers().low());
        const auto high = static_cast<int64_t>(draw.integers().high());
        return std::to_string(low +
                              static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1)));
      }
      case v1::ArrayDraw::kChoice:
      case v1::ArrayDraw::KIND_NOT_SET:
        break;
    }
    const auto count = static_cast<uint64_t>(draw.choice().values_size());
    return draw.choice().values(static_cast<int>(below(count)));
  }

  ArrayMembers out_;
  std::map<std::string, const SpecField*> by_path_;
};

}  // namespace

Result<ArrayMembers> expand_array(const v1::ArraySpec& array) { return Expansion().expand(array); }

}  // namespace trainyard::server
