// Changes of tokens and shares, inside the writer's transaction.
#include <algorithm>
#include <utility>

#include "server/store/people_rows.h"
#include "server/store/random_id.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

std::string random_token_id() {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = "t-";
  for (const char c : random_bytes(8)) {
    id += kDigits[static_cast<unsigned char>(c) >> 4];
    id += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return id;
}

bool has_token_named(Connection& db, std::string_view person, std::string_view name) {
  Query row(db, "SELECT 1 FROM tokens WHERE person = ? AND name = ?");
  row.bind(person).bind(name);
  return row.step();
}

int64_t tokens_of(Connection& db, std::string_view person) {
  Query row(db, "SELECT count(*) FROM tokens WHERE person = ?");
  row.bind(person);
  return row.step() ? row.integer(0) : 0;
}

int64_t expire_time_us(int64_t now_us, int64_t valid_us) {
  return valid_us == 0 ? 0 : now_us + valid_us;
}

}  // namespace

Result<Token> create_token(WriteContext& context, const NewToken& asked) {
  if (asked.creates_person) {
    if (Status s = ensure_person(context, asked.person); !s.ok()) return s.error();
  }
  const std::optional<Person> person = find_person_row(context.db, asked.person);
  if (!person) {
    return make_error(ErrorCode::kNotFound, "PERSON_NOT_FOUND",
                      "person: there is no person " + quoted_value(asked.person));
  }
  if (!asked.may_act_for.empty() && !person->service) {
    return field_error("FIELD_CONFLICT", "may_act_for",
                       "only a service's token may act for people, and " +
                           quoted_value(asked.person) + " is no service");
  }
  if (has_token_named(context.db, asked.person, asked.name)) {
    return make_error(ErrorCode::kAlreadyExists, "TOKEN_EXISTS",
                      "name: " + quoted_value(asked.person) + " already has a token " +
                          quoted_value(asked.name) +
                          "; choose another name, or rotate or revoke that one");
  }
  if (tokens_of(context.db, asked.person) >= kTokensOfAPersonMax) {
    return make_error(ErrorCode::kResourceExhausted, "TOKENS_LIMIT_REACHED",
                      quoted_value(asked.person) + " has " + std::to_string(kTokensOfAPersonMax) +
                          " tokens, the maximum; revoke some first");
  }
  const std::string id = random_token_id();
  Query(context.db,
        "INSERT INTO tokens (id, person, name, digest, create_time_us, valid_us, expire_time_us)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)")
      .bind(id)
      .bind(asked.person)
      .bind(asked.name)
      .bind(asked.digest)
      .bind(context.now_us)
      .bind(asked.valid_us)
      .bind(expire_time_us(context.now_us, asked.valid_us))
      .run();
  for (const std::string& subject : asked.may_act_for) {
    Query(context.db, "INSERT OR IGNORE INTO token_acts_for (token, person) VALUES (?, ?)")
        .bind(id)
        .bind(subject)
        .run();
  }
  return *find_token_row(context.db, id);
}

Result<Token> rotate_token(WriteContext& context, const std::string& id, const std::string& digest,
                           int64_t overlap_us, int64_t valid_us) {
  const std::optional<Token> token = find_token_row(context.db, id);
  if (!token) return token_not_found(id);
  // The old text never outlives its own expiry.
  int64_t old_end_us = context.now_us + overlap_us;
  if (token->expire_time_us != 0) old_end_us = std::min(old_end_us, token->expire_time_us);
  Query(context.db,
        "UPDATE tokens SET digest = ?, old_digest = ?, old_end_us = ?, rotations = rotations + 1,"
        " expire_time_us = ? WHERE id = ?")
      .bind(digest)
      .bind(token->digest)
      .bind(old_end_us)
      .bind(expire_time_us(context.now_us, valid_us == 0 ? token->valid_us : valid_us))
      .bind(id)
      .run();
  return *find_token_row(context.db, id);
}

Status revoke_token(WriteContext& context, const std::string& id) {
  Query(context.db, "DELETE FROM tokens WHERE id = ?").bind(id).run();
  if (context.db.changes() == 0) return token_not_found(id);
  return {};
}

namespace {

std::string resource_name(const Share& share) {
  return "projects/" + share.project + "/" + share.collection + "/" + share.id;
}

bool exists(Connection& db, const Share& share) {
  if (share.collection == "models") {
    Query row(db, "SELECT 1 FROM models WHERE project = ? AND id = ?");
    row.bind(share.project).bind(share.id);
    return row.step();
  }
  Query row(db,
            "SELECT 1 FROM datasets WHERE project = ?1 AND (id = ?2 OR id || '@' || version = ?2)"
            " LIMIT 1");
  row.bind(share.project).bind(share.id);
  return row.step();
}

std::optional<Share> find_share(Connection& db, const Share& share) {
  Query row(db,
            "SELECT person, time_us FROM shares"
            " WHERE project = ? AND collection = ? AND id = ? AND with_project = ?");
  row.bind(share.project).bind(share.collection).bind(share.id).bind(share.with_project);
  if (!row.step()) return std::nullopt;
  Share found = share;
  found.person = row.text(0);
  found.time_us = row.integer(1);
  return found;
}

Status check_share_limits(Connection& db, const Share& asked) {
  Query row(db,
            "SELECT (SELECT count(*) FROM shares WHERE project = ?),"
            " (SELECT count(*) FROM shares WHERE with_project = ?)");
  row.bind(asked.project).bind(asked.with_project);
  if (!row.step()) return {};
  const bool gives = row.integer(0) >= kSharesOfAProjectMax;
  if (!gives && row.integer(1) < kSharesOfAProjectMax) return {};
  return make_error(ErrorCode::kResourceExhausted, "SHARES_LIMIT_REACHED",
                    "the project " + quoted_value(gives ? asked.project : asked.with_project) +
                        (gives ? " shares " : " receives ") + std::to_string(kSharesOfAProjectMax) +
                        " datasets and models, the maximum; end some shares first");
}

}  // namespace

Result<Share> put_share(WriteContext& context, const Share& asked) {
  if (!find_project_row(context.db, asked.with_project))
    return project_not_found(asked.with_project);
  if (!exists(context.db, asked)) {
    return make_error(ErrorCode::kNotFound,
                      asked.collection == "models" ? "MODEL_NOT_FOUND" : "DATASET_NOT_FOUND",
                      "there is no " + resource_name(asked));
  }
  if (std::optional<Share> known = find_share(context.db, asked)) return std::move(*known);
  if (Status s = check_share_limits(context.db, asked); !s.ok()) return s.error();
  if (Status s = ensure_person(context, asked.person); !s.ok()) return s.error();
  Query(context.db,
        "INSERT INTO shares (project, collection, id, with_project, person, time_us)"
        " VALUES (?, ?, ?, ?, ?, ?)")
      .bind(asked.project)
      .bind(asked.collection)
      .bind(asked.id)
      .bind(asked.with_project)
      .bind(asked.person)
      .bind(context.now_us)
      .run();
  return *find_share(context.db, asked);
}

Status remove_share(WriteContext& context, const Share& asked) {
  Query(context.db,
        "DELETE FROM shares"
        " WHERE project = ? AND collection = ? AND id = ? AND with_project = ?")
      .bind(asked.project)
      .bind(asked.collection)
      .bind(asked.id)
      .bind(asked.with_project)
      .run();
  if (context.db.changes() > 0) return {};
  return make_error(
      ErrorCode::kNotFound, "SHARE_NOT_FOUND",
      resource_name(asked) + " is not shared with the project " + quoted_value(asked.with_project));
}

Status note_call(WriteContext& context, const std::string& person, bool host_user,
                 const std::string& token_id) {
  if (Status s = ensure_person(context, person); !s.ok()) return s;
  Query(context.db,
        "UPDATE people SET last_call_us = ?, host_user = max(host_user, ? AND NOT service)"
        " WHERE name = ?")
      .bind(context.now_us)
      .bind(int64_t{host_user})
      .bind(person)
      .run();
  if (token_id.empty()) return {};
  Query(context.db, "UPDATE tokens SET last_use_us = ? WHERE id = ?")
      .bind(context.now_us)
      .bind(token_id)
      .run();
  return {};
}

}  // namespace trainyard::server
