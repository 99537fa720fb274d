#include "server/worker/server_source.h"

#include <utility>

#include "src/base/text.h"

namespace trainyard {

Result<ServerSource> ServerSource::open(const v1::DatasetSource& source, int index,
                                        std::span<const std::filesystem::path> roots) {
  ServerSource out;
  out.name_ = source.server_path();
  out.field_ = "spec.sources[" + std::to_string(index) + "].server_path";
  ASSIGN_OR_RETURN(out.opened_, open_allowed_path(out.name_, roots, out.field_));
  ASSIGN_OR_RETURN(out.stamp_, stamp_of(out.opened_, out.field_));
  return out;
}

Result<std::string> ServerSource::digest() const {
  Result<std::string> sha256 = content_digest(opened_);
  if (!sha256.ok()) return with_name(sha256.error());
  return sha256;
}

std::string ServerSource::trusted_stamp(int64_t now_s) const {
  return stamp_.changed_s + kSettledS < now_s ? stamp_.digest : "";
}

Status ServerSource::check_content(const std::string& sha256, const std::string& stamp) const {
  if (!stamp.empty() && stamp == stamp_.digest) return {};
  ASSIGN_OR_RETURN(const std::string now, digest());
  if (now == sha256) return {};
  return changed("has changed since the dataset was created; create it again");
}

Status ServerSource::check_unchanged() const {
  ASSIGN_OR_RETURN(const SourceStamp now, stamp_of(opened_, field_));
  return now.digest == stamp_.digest ? Status() : changed("changed while it was read; try again");
}

Error ServerSource::changed(const std::string& how) const {
  Error e = field_error("SOURCE_CHANGED", field_, quoted_value(name_) + " " + how);
  e.code = ErrorCode::kFailedPrecondition;
  return e;
}

Error ServerSource::with_name(Error error) const {
  const std::string shown = path().string();
  const auto rename = [&](std::string& text) {
    for (size_t at = 0; (at = text.find(shown, at)) != std::string::npos; at += name_.size()) {
      text.replace(at, shown.size(), name_);
    }
  };
  rename(error.message);
  for (FieldViolation& violation : error.violations) {
    rename(violation.field);
    rename(violation.description);
  }
  return error;
}

}  // namespace trainyard
