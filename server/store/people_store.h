// server/store/people_store.h: stores people, projects, their members, tokens and shares.
// Thread-safe; see server/store/store.h. server/people has a copy in memory for each call's checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/resource_id.h"
#include "src/base/result.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::server {

class StoreCore;

inline constexpr int64_t kPeopleMax = 20'000;
inline constexpr int64_t kProjectsMax = 10'000;
inline constexpr int64_t kTokensOfAPersonMax = 100;
inline constexpr int64_t kSharesOfAProjectMax = 1'000;  // given, and as many received

struct Membership {
  std::string project;
  std::string person;
  // NONE only in "default": the person does not get socket_role there.
  v1::ProjectRole role = v1::NONE;
};

struct Person {
  std::string name;
  v1::ServerRole server_role = v1::USER;
  bool service = false;
  bool host_user = false;  // has called on the Unix socket
  int64_t create_time_us = 0;
  int64_t last_call_us = 0;             // 0: none yet
  std::vector<Membership> memberships;  // by project
};

struct Project {
  std::string id;
  int64_t create_time_us = 0;
  std::vector<std::string> devices;  // empty: all
  int64_t members = 0;
};

struct Token {
  std::string id;
  std::string person;
  std::string name;
  std::string digest;      // SHA-256 of the text
  std::string old_digest;  // of the text before the last rotation, valid until old_end_us; or empty
  int64_t old_end_us = 0;
  int64_t rotations = 0;
  int64_t create_time_us = 0;
  int64_t valid_us = 0;        // at first; 0: it never expires
  int64_t expire_time_us = 0;  // 0: never
  int64_t last_use_us = 0;     // 0: none yet
  std::vector<std::string> may_act_for;
};

struct Share {
  std::string project;
  std::string collection;  // "datasets" or "models"
  std::string id;          // of a dataset with or without a version
  std::string with_project;
  std::string person;  // who shared it
  int64_t time_us = 0;
};

/// Everything, as of one instant. Memberships are empty in `people` and all in `members`.
struct PeopleRows {
  std::vector<Person> people;
  std::vector<Project> projects;
  std::vector<Membership> members;
  std::vector<Token> tokens;
  std::vector<std::string> revoked_digests;
  std::vector<Share> shares;
};

struct NewPerson {
  std::string name;
  v1::ServerRole server_role = v1::SERVER_ROLE_UNSPECIFIED;  // unchanged; USER for a new person
  bool service = false;                                      // of a new person
  // Whether the change may leave the store without an admin (only the daemon's own user may).
  bool may_leave_no_admin = false;
};

struct NewToken {
  std::string person;
  std::string name;
  std::string digest;
  int64_t valid_us = 0;  // 0: it never expires
  std::vector<std::string> may_act_for;
  // Whether to create the person, for a user of the host who has made no call yet.
  bool creates_person = false;
};

/// One page of a list that is ordered by names.
template <typename T>
struct NamedPage {
  std::vector<T> entries;
  std::string next_page_token;
};

class PeopleStore {
 public:
  explicit PeopleStore(StoreCore& core) : core_(core) {}

  Result<PeopleRows> read_all() const;

  /// Creates the person or changes the role. Errors: FAILED_PRECONDITION/LAST_ADMIN, SERVICE_FIXED;
  /// RESOURCE_EXHAUSTED/PEOPLE_LIMIT_REACHED.
  Result<Person> put_person(NewPerson asked);
  /// Removes the person with all tokens, roles and shares; `give_to`, unless it is empty, becomes
  /// the owner of the person's jobs, arrays, datasets, models and shares. Errors:
  /// NOT_FOUND/PERSON_NOT_FOUND; FAILED_PRECONDITION/PERSON_OWNS_RESOURCES, LAST_ADMIN.
  Status remove_person(const std::string& name, const std::string& give_to,
                       bool may_leave_no_admin = false);
  /// Errors of all lists: PAGE_SIZE_NEGATIVE, PAGE_TOKEN_INVALID.
  Result<NamedPage<Person>> list_people(int32_t page_size, const std::string& page_token) const;

  /// Errors: ALREADY_EXISTS/PROJECT_EXISTS; RESOURCE_EXHAUSTED/PROJECTS_LIMIT_REACHED.
  Result<Project> create_project(const std::string& id);
  /// Error: NOT_FOUND/PROJECT_NOT_FOUND.
  Result<Project> set_devices(const std::string& id, std::vector<std::string> devices);
  /// Errors: PROJECT_NOT_FOUND; FAILED_PRECONDITION/PROJECT_NOT_EMPTY, PROJECT_NEEDED.
  Status remove_project(const std::string& id);
  /// Lists those of `ids`, which are sorted.
  Result<NamedPage<Project>> list_projects(const std::vector<std::string>& ids, int32_t page_size,
                                           const std::string& page_token) const;

  /// Gives a person, who is created if necessary, a role, or with NONE takes it away. Errors:
  /// PROJECT_NOT_FOUND; PEOPLE_LIMIT_REACHED.
  Status set_member(const Membership& member);
  Result<NamedPage<Membership>> list_members(const std::string& project, int32_t page_size,
                                             const std::string& page_token) const;

  /// Errors: ALREADY_EXISTS/TOKEN_EXISTS; PERSON_NOT_FOUND;
  /// RESOURCE_EXHAUSTED/TOKENS_LIMIT_REACHED; INVALID_ARGUMENT/FIELD_CONFLICT for may_act_for of a
  /// person who is no service.
  Result<Token> create_token(NewToken asked);
  /// Replaces the digest; the old one stays valid for `overlap_us`. The new one is valid for
  /// `valid_us` or, for 0, as long as the token was at first. Error: NOT_FOUND/TOKEN_NOT_FOUND.
  Result<Token> rotate_token(const std::string& id, const std::string& digest, int64_t overlap_us,
                             int64_t valid_us);
  /// Error: TOKEN_NOT_FOUND.
  Status revoke_token(const std::string& id);
  /// Error: TOKEN_NOT_FOUND.
  Result<Token> find_token(const std::string& id) const;
  /// Lists the tokens of `person`, or of all for "", by person, then name.
  Result<NamedPage<Token>> list_tokens(const std::string& person, int32_t page_size,
                                       const std::string& page_token) const;

  /// Returns the existing share if there is one. Errors: NOT_FOUND/DATASET_NOT_FOUND,
  /// MODEL_NOT_FOUND, PROJECT_NOT_FOUND; RESOURCE_EXHAUSTED/SHARES_LIMIT_REACHED.
  Result<Share> share(Share asked);
  /// Error: NOT_FOUND/SHARE_NOT_FOUND.
  Status unshare(const Share& asked);

  /// Notes the time of a person's call, by the token `token_id` unless that is empty, and creates a
  /// person who is not known. Waits for nothing: the change shares a later commit.
  void note_call(const std::string& person, bool host_user, const std::string& token_id);

 private:
  StoreCore& core_;
};

/// Returns NOT_FOUND/PROJECT_NOT_FOUND. The words are the same for a project that does not exist
/// and for one of which the caller is not a member.
Error project_not_found(std::string_view id);
/// Returns NOT_FOUND/TOKEN_NOT_FOUND, the same for a token of someone else.
Error token_not_found(std::string_view id);

}  // namespace trainyard::server
