// server/people/people.h: the roles of all people, and their tokens, in memory.
//
// The store is the truth; this class holds a copy that it replaces as a whole after each change, so
// that a call reads it without the store and without waiting. A revoked token or role has effect
// before the call that revoked it is answered. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/config/token.h"
#include "server/people/principal.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

class Store;
struct Share;

class People {
 public:
  /// `socket_role` is the role in the project "default" of those to whom the store gives no role
  /// there: users of the host, and the names in token_file. Call reload() before the first call.
  People(Store& store, const Clock& clock, ProjectRole socket_role);
  ~People();
  People(const People&) = delete;

  /// Reads the store again. Called after each change of people, members, tokens, projects, shares.
  Status reload();
  /// Reads the store again if the last reload() failed.
  Status refresh();
  /// Replaces the tokens of token_file.
  void set_file_tokens(const Tokens& tokens);
  /// `changed` is called after each reload() and set_file_tokens(). Register before the first call.
  void observe(std::function<void()> changed);

  /// Returns whose token this is. UNAUTHENTICATED / CREDENTIALS_INVALID, CREDENTIALS_EXPIRED,
  /// CREDENTIALS_REVOKED. `acting_for` is the metadata trainyard-acting-for, or empty:
  /// PERMISSION_DENIED / ACTING_FOR_DENIED.
  Result<Principal> find_by_token(std::string_view text, std::string_view acting_for) const;
  /// Returns the user of the host at the other end of the Unix socket. UNAUTHENTICATED /
  /// CREDENTIALS_INVALID if a service has that name; ACTING_FOR_DENIED.
  Result<Principal> find_by_user(const std::string& name, bool owns_daemon,
                                 std::string_view acting_for) const;
  /// Returns whether the principal's token is still valid, for long streams.
  bool is_valid(const Principal& principal) const;
  /// Stores the time of the call, at most once a minute for a caller. Never waits.
  void note_call(const Principal& principal);

  /// Returns whether the person is in the store, in token_file, or has called since the start.
  bool knows(std::string_view person) const;
  /// Returns when the principal's token expires; 0: never, or there is no token.
  int64_t expire_time_us(const Principal& principal) const;
  /// Returns the name of the principal's token; empty without one.
  std::string token_name(const Principal& principal) const;
  ServerRole server_role(const Principal& principal) const;
  /// Returns the person's role in the project: kMaintainer for admins, kNone for a project that
  /// does not exist.
  ProjectRole role(const Principal& principal, std::string_view project) const;
  /// Returns the projects in which the person is at least a viewer, sorted.
  std::vector<std::string> projects(const Principal& principal) const;
  /// Returns the same with the roles.
  std::vector<std::pair<std::string, ProjectRole>> memberships(const Principal& principal) const;

  /// Returns whether `project` shares the dataset or model with a project in which the person is at
  /// least a viewer. `collection` is "datasets" or "models". A share of a dataset without a version
  /// is one of "digits@2" too, but not the other way round.
  bool is_shared_with(const Principal& principal, std::string_view project,
                      std::string_view collection, std::string_view id) const;
  /// Returns whether `project` shares the dataset or model with `with_project`.
  bool is_shared(std::string_view project, std::string_view collection, std::string_view id,
                 std::string_view with_project) const;
  /// Returns whether the dataset, any of its versions, or the model is shared with any project.
  bool has_shares(std::string_view project, std::string_view collection, std::string_view id) const;
  /// Returns what the project shares and what is shared with it, by name.
  std::vector<Share> shares_of(std::string_view project) const;

  /// Returns the devices that the project's jobs may use; empty: all.
  std::vector<std::string> devices(std::string_view project) const;
  /// Returns those of all projects that may not use all.
  std::map<std::string, std::vector<std::string>> project_devices() const;

 private:
  struct View;
  struct FileTokens;
  std::shared_ptr<const View> view() const;
  std::shared_ptr<const FileTokens> file_tokens() const;
  void notify();
  /// Returns whether the person has socket_role in "default" unless the store gives another.
  bool is_host_user(const View& view, const Principal& principal) const;
  Result<Principal> act_for(const View& view, Principal service, std::string_view person) const;

  Store& store_;
  const Clock& clock_;
  const ProjectRole socket_role_;
  std::vector<std::function<void()>> observers_;
  std::atomic<bool> stale_{false};

  Mutex reload_mu_;  // serializes reload(), so that the last call sets the newest copy
  mutable Mutex mu_;
  std::shared_ptr<const View> view_ TRAINYARD_GUARDED_BY(mu_);
  std::shared_ptr<const FileTokens> file_tokens_ TRAINYARD_GUARDED_BY(mu_);
  // The people who have called since the start, who may not be in `view_` yet; true: on the socket.
  std::map<std::string, bool, std::less<>> called_ TRAINYARD_GUARDED_BY(mu_);
  // When the last call of a person by a token was stored.
  std::map<std::string, int64_t> noted_us_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
