#include "server/handlers/token_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/config/log.h"
#include "server/people/random_token.h"
#include "server/store/dataset_ref.h"
#include "server/store/proto_time.h"
#include "src/base/person_name.h"
#include "src/base/resource_id.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::server {
namespace {

constexpr int64_t kValidSecondsMin = 60;
constexpr int64_t kValidSecondsMax = 315'360'000;    // ten years
constexpr int64_t kValidSecondsDefault = 7'776'000;  // 90 days
constexpr int64_t kOverlapSecondsMax = 604'800;      // a week
constexpr int kActsForMax = 100;

v1::Token to_proto(const Token& token) {
  v1::Token out;
  out.set_id(token.id);
  out.set_person(token.person);
  out.set_name(token.name);
  *out.mutable_create_time() = to_timestamp(token.create_time_us);
  if (token.expire_time_us != 0) *out.mutable_expire_time() = to_timestamp(token.expire_time_us);
  if (token.last_use_us != 0) *out.mutable_last_use_time() = to_timestamp(token.last_use_us);
  out.mutable_may_act_for()->Assign(token.may_act_for.begin(), token.may_act_for.end());
  return out;
}

bool is_admin(const PeopleParts& parts, const CallInfo& call) {
  return parts.people.server_role(call.principal) == ServerRole::kAdmin;
}

/// Returns PERMISSION_DENIED/ROLE_REQUIRED for something that only admins may do.
Error admin_required(const PeopleParts& parts, const CallInfo& call, const std::string& what) {
  return make_error(ErrorCode::kPermissionDenied, "ROLE_REQUIRED",
                    what + " needs the role admin on the server; yours is " +
                        name_of(parts.people.server_role(call.principal)));
}

Status check_token_name(const std::string& name) {
  if (name.empty()) {
    return field_error("FIELD_REQUIRED", "name", "is missing: the token's purpose, as in laptop");
  }
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (plain && name.size() <= kPersonNameCharsMax) return {};
  return field_error(
      "NAME_MALFORMED", "name",
      quoted_value(name) + " is malformed, expected 1 to 63 letters, digits and . _ -");
}

Status check_range(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return field_error("FIELD_OUT_OF_RANGE", field,
                     std::to_string(value) + " is out of range, expected " + std::to_string(min) +
                         ".." + std::to_string(max));
}

/// Returns how long a new token is valid; 0: it never expires.
Result<int64_t> valid_us(const v1::CreateTokenRequest& request) {
  const int64_t seconds = request.valid_seconds();
  if (request.never_expires()) {
    if (seconds == 0) return 0;
    return field_error("FIELD_CONFLICT", "valid_seconds", "contradicts never_expires");
  }
  if (seconds == 0) return kValidSecondsDefault * 1'000'000;
  if (Status s = check_range("valid_seconds", seconds, kValidSecondsMin, kValidSecondsMax);
      !s.ok()) {
    return s.error();
  }
  return seconds * 1'000'000;
}

Result<std::vector<std::string>> people_to_act_for(const v1::CreateTokenRequest& request) {
  if (request.may_act_for_size() > kActsForMax) {
    return field_error("FIELD_OUT_OF_RANGE", "may_act_for",
                       std::to_string(request.may_act_for_size()) + " names, expected at most " +
                           std::to_string(kActsForMax) + ", or \"*\" for all");
  }
  std::set<std::string> names;
  for (const std::string& name : request.may_act_for()) {
    if (name != "*") {
      if (Status s = check_person_name("may_act_for", name); !s.ok()) return s.error();
    }
    names.insert(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<v1::CreateTokenResponse> create_token(const PeopleParts& parts,
                                             const v1::CreateTokenRequest& request,
                                             const CallInfo& call) {
  if (Status s = check_not_acting(call, "CreateToken"); !s.ok()) return s.error();
  NewToken asked;
  asked.person = request.person().empty() ? call.principal.person : request.person();
  asked.creates_person = asked.person == call.principal.person;
  if (Status s = check_person_name("person", asked.person); !s.ok()) return s.error();
  if (Status s = check_token_name(request.name()); !s.ok()) return s.error();
  asked.name = request.name();
  ASSIGN_OR_RETURN(asked.valid_us, valid_us(request));
  ASSIGN_OR_RETURN(asked.may_act_for, people_to_act_for(request));
  if (!is_admin(parts, call)) {
    if (!asked.creates_person) return admin_required(parts, call, "a token of another person");
    if (asked.valid_us == 0) return admin_required(parts, call, "a token that never expires");
    if (!asked.may_act_for.empty()) {
      return admin_required(parts, call, "a token that may act for other people");
    }
  }
  v1::CreateTokenResponse out;
  out.set_text(random_token_text());
  asked.digest = sha256_hex(out.text());
  ASSIGN_OR_RETURN(const Token token, parts.store.people().create_token(std::move(asked)));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=token_created token={} {} {} {}", token.id, kv("person", token.person),
               kv("name", token.name), kv("caller", call.principal.text()));
  *out.mutable_token() = to_proto(token);
  return out;
}

/// Returns the token if it is the caller's, or the caller is an admin. TOKEN_NOT_FOUND, with the
/// same words whether or not there is a token of someone else.
Result<Token> find_own(const PeopleParts& parts, const std::string& id, const CallInfo& call) {
  if (id.empty())
    return field_error("FIELD_REQUIRED", "id", "is missing, as in t-0123456789abcdef");
  ASSIGN_OR_RETURN(Token token, parts.store.people().find_token(id));
  if (token.person == call.principal.person || is_admin(parts, call)) return token;
  return token_not_found(id);
}

Result<v1::CreateTokenResponse> rotate_token(const PeopleParts& parts,
                                             const v1::RotateTokenRequest& request,
                                             const CallInfo& call) {
  if (Status s = check_not_acting(call, "RotateToken"); !s.ok()) return s.error();
  if (Status s = parts.people.refresh(); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(const Token before, find_own(parts, request.id(), call));
  if (Status s = check_range("overlap_seconds", request.overlap_seconds(), 0, kOverlapSecondsMax);
      !s.ok()) {
    return s.error();
  }
  if (request.valid_seconds() != 0) {
    if (Status s = check_range("valid_seconds", request.valid_seconds(), kValidSecondsMin,
                               kValidSecondsMax);
        !s.ok()) {
      return s.error();
    }
  }
  v1::CreateTokenResponse out;
  out.set_text(random_token_text());
  ASSIGN_OR_RETURN(const Token token,
                   parts.store.people().rotate_token(before.id, sha256_hex(out.text()),
                                                     request.overlap_seconds() * 1'000'000,
                                                     request.valid_seconds() * 1'000'000));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=token_rotated token={} {} {} overlap_s={}", token.id,
               kv("person", token.person), kv("caller", call.principal.text()),
               request.overlap_seconds());
  *out.mutable_token() = to_proto(token);
  return out;
}

Status revoke_token(const PeopleParts& parts, const v1::RevokeTokenRequest& request,
                    const CallInfo& call) {
  if (Status s = check_not_acting(call, "RevokeToken"); !s.ok()) return s;
  if (Status s = parts.people.refresh(); !s.ok()) return s;
  ASSIGN_OR_RETURN(const Token token, find_own(parts, request.id(), call));
  if (Status s = parts.store.people().revoke_token(token.id); !s.ok()) return s;
  if (Status s = parts.people.reload(); !s.ok()) return s;
  spdlog::info("event=token_revoked token={} {} {}", token.id, kv("person", token.person),
               kv("caller", call.principal.text()));
  return {};
}

Result<v1::ListTokensResponse> list_tokens(const PeopleParts& parts,
                                           const v1::ListTokensRequest& request,
                                           const CallInfo& call) {
  std::string person = request.person();
  if (request.all() && !person.empty()) {
    return field_error("FIELD_CONFLICT", "person", "contradicts all");
  }
  if (!request.all() && person.empty()) person = call.principal.person;
  if (person != call.principal.person && !is_admin(parts, call)) {
    return admin_required(parts, call, "a list of other people's tokens");
  }
  ASSIGN_OR_RETURN(
      const NamedPage<Token> page,
      parts.store.people().list_tokens(person, request.page_size(), request.page_token()));
  v1::ListTokensResponse out;
  for (const Token& token : page.entries) *out.add_tokens() = to_proto(token);
  out.set_next_page_token(page.next_page_token);
  return out;
}

/// Returns what projects/P/datasets/D, with or without a version, or projects/P/models/M names.
Result<Share> parse_share(const v1::ShareRequest& request) {
  const auto refuse = [&request] {
    return field_error("NAME_MALFORMED", "name",
                       quoted_value(request.name()) +
                           " is malformed, expected projects/ID/datasets/ID, which may have a "
                           "version as in digits@2, or projects/ID/models/ID");
  };
  std::vector<std::string> words(1);
  for (const char c : request.name()) {
    if (c == '/') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() != 4 || words[0] != "projects" || !is_resource_id(words[1])) return refuse();
  Share share;
  share.project = words[1];
  share.collection = words[2];
  share.id = words[3];
  if (share.collection == "datasets") {
    const std::optional<DatasetRef> ref = parse_dataset_ref(share.id);
    if (!ref || !is_resource_id(ref->id)) return refuse();
  } else if (share.collection != "models" || !is_resource_id(share.id)) {
    return refuse();
  }
  ASSIGN_OR_RETURN(share.with_project, parse_project("with_project", request.with_project()));
  if (share.with_project == share.project) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "with_project",
        "is the project of the " + std::string(share.collection == "models" ? "model" : "dataset"));
  }
  return share;
}

v1::ShareEntry to_proto(const Share& share) {
  v1::ShareEntry out;
  out.set_name("projects/" + share.project + "/" + share.collection + "/" + share.id);
  out.set_with_project("projects/" + share.with_project);
  out.set_person(share.person);
  *out.mutable_time() = to_timestamp(share.time_us);
  return out;
}

Result<v1::ShareEntry> share(const PeopleParts& parts, const v1::ShareRequest& request,
                             const CallInfo& call) {
  ASSIGN_OR_RETURN(Share asked, parse_share(request));
  if (parts.people.role(call.principal, asked.with_project) < ProjectRole::kViewer) {
    return project_not_found(asked.with_project);
  }
  asked.person = call.principal.person;
  ASSIGN_OR_RETURN(const Share shared, parts.store.people().share(std::move(asked)));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=share_created {} {} {}", kv("name", request.name()),
               kv("with_project", shared.with_project), kv("caller", call.principal.text()));
  return to_proto(shared);
}

Status unshare(const PeopleParts& parts, const v1::ShareRequest& request, const CallInfo& call) {
  ASSIGN_OR_RETURN(const Share asked, parse_share(request));
  if (Status s = parts.people.refresh(); !s.ok()) return s;
  if (Status s = parts.store.people().unshare(asked); !s.ok()) return s;
  if (Status s = parts.people.reload(); !s.ok()) return s;
  spdlog::info("event=share_ended {} {} {}", kv("name", request.name()),
               kv("with_project", asked.with_project), kv("caller", call.principal.text()));
  return {};
}

Result<v1::ListSharesResponse> list_shares(const PeopleParts& parts,
                                           const v1::ListSharesRequest& request) {
  ASSIGN_OR_RETURN(const std::string id, parse_project("parent", request.parent()));
  v1::ListSharesResponse out;
  for (const Share& share : parts.people.shares_of(id)) {
    *(share.project == id ? out.add_given() : out.add_received()) = to_proto(share);
  }
  return out;
}

}  // namespace

void add_token_rows(Methods& rows, const PeopleParts& parts) {
  rows.add("CreateToken", parts, &create_token);
  rows.add("RotateToken", parts, &rotate_token);
  rows.add("RevokeToken", parts, &revoke_token);
  rows.add("ListTokens", parts, &list_tokens);
  rows.add("Share", parts, &share);
  rows.add("Unshare", parts, &unshare);
  rows.add("ListShares", parts, &list_shares);
}

}  // namespace trainyard::server
