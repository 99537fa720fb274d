// server/handlers/access.h: the one table that says which role each call needs.
//
// Every handler's frame asks it after the caller is known and before anything is done. The table is
// also docs/access.md, which a test compares with it, and tests/server/service_access_test.cc makes
// every call in every role.
//
// A project that the caller may not see is treated as one that does not exist, without a look into
// the store, so that neither words nor time tell the difference.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/people/people.h"
#include "src/base/result.h"

namespace trainyard::server {

class Store;

enum class AccessNeed {
  kAnyone,  // authenticated; the handler shows only what the caller may see. A name in the request
            // must be of a visible project
  kSelf,    // the person in the request, which is the caller if it is empty; admins for everyone
  kViewer,  // in the project of the request's name or parent
  kReader,  // the same, or a viewer of a project with which the dataset or model is shared
  kMember,  // in the project of the request's name or parent
  kOwner,   // a member who owns the object, or a maintainer
  kMaintainer,  // in the project of the request's name or parent
  kOperator,
  kAdmin,
};

struct AccessRow {
  std::string_view method;
  AccessNeed need = AccessNeed::kAdmin;
  // The request's field with the object's full name or with the parent project, "start.parent" for
  // one in a message; with kSelf that with the person. Empty for calls that concern no project.
  std::string_view field = {};
  // An optional field with another name, which the caller must be able to see; empty if there is
  // none.
  std::string_view also = {};
  bool operators = false;  // operators may make the call for every project
  bool in_person = false;  // refused to a service that acts for a person
};

/// Returns a row for every method of every public service, by service and in the proto's order.
std::span<const AccessRow> access_rows();
/// Returns the method's row; null if it has none.
const AccessRow* find_access_row(std::string_view method);
/// Throws InvariantError if a method of the service has no row, or one with a field that its
/// request does not have. Called when the daemon starts.
void check_access_rows(const google::protobuf::ServiceDescriptor& service);

/// The roles with which a call was let through.
struct Rights {
  ProjectRole role = ProjectRole::kNone;  // in the project of the request's name or parent
  ServerRole server_role = ServerRole::kUser;

  /// Returns whether the caller may change what others own in the request's project.
  bool maintains() const { return role >= ProjectRole::kMaintainer; }
  /// Returns OK if the caller may give a job this priority. Jobs with a priority above 0 start
  /// before the jobs of all other people and projects, so these need an operator. PERMISSION_DENIED
  /// / ROLE_REQUIRED; `field` is the request's.
  Status check_priority(std::string_view field, int32_t priority) const;
};

/// Returns PERMISSION_DENIED / ROLE_REQUIRED for a call that needs a role on the server. `what`
/// needs it: "CreateToken for another person".
Error role_required(ServerRole needed, ServerRole held, std::string_view what);

class Permit;

class Access {
 public:
  Access(const People& people, Store& store) : people_(people), store_(store) {}

  /// Returns the caller's rights if the principal may make the call. NOT_FOUND / PROJECT_NOT_FOUND,
  /// the same whether or not the project exists; PERMISSION_DENIED / ROLE_REQUIRED, only for what
  /// the caller may see; PERMISSION_DENIED / ACTING_FOR_DENIED. A malformed or absent name passes:
  /// the handler refuses it with a better message. Calls with AccessNeed::kOwner may read the
  /// store.
  Result<Rights> check(std::string_view method, const google::protobuf::Message& request,
                       const Principal& principal) const;
  /// Like check(), for a stream, which asks again while it runs.
  Result<Permit> permit(std::string_view method, const google::protobuf::Message& request,
                        const Principal& principal) const;
  const People& people() const { return people_; }

 private:
  friend class Permit;
  /// The part of a request from which access follows.
  struct Asked {
    const AccessRow* row = nullptr;
    std::string name;  // the text of `row->field`
    std::string also;  // the text of `row->also`
  };
  static Asked asked_of(std::string_view method, const google::protobuf::Message& request);
  Result<Rights> check(const Asked& asked, const Principal& principal) const;
  Status check_name(const Asked& asked, const Principal& principal, Rights& rights) const;
  Status check_seen(const AccessRow& row, const std::string& name, const Principal& principal,
                    const Rights& rights) const;
  Status check_owner(const Asked& asked, const Principal& principal) const;

  const People& people_;
  Store& store_;
};

/// The right to go on with a stream. It ends when the caller's token is revoked or expires, or when
/// the role goes. Must not outlive the Access.
class Permit {
 public:
  /// Errors as Access::check(), and UNAUTHENTICATED / CREDENTIALS_REVOKED.
  Status check() const;

 private:
  friend class Access;
  Permit(const Access& access, Access::Asked asked, Principal principal);
  const Access* access_;
  Access::Asked asked_;
  Principal principal_;
};

}  // namespace trainyard::server
