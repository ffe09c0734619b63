# Dependencies: the system's packages where they can be linked into a self-contained libengine.so, pinned sources otherwise.
#
# For each one, in this order:
#   1. FETCHCONTENT_SOURCE_DIR_<NAME>, if given (ABSL, HIGHWAY, PCRE2, UTF8PROC, XXHASH, JSON, CATCH2);
#   2. the system's package, if it passes the test below;
#   3. the tree that cmake/install_deps.sh unpacked into ENGINE_DEPS_DIR;
#   4. a download, pinned by URL and SHA-256.
#
# A packaged libengine.so needs nothing but libc, libm and the loader, so with ENGINE_SELF_CONTAINED (the default)
# a system package counts only as a static library that links into a shared one. Debian's PCRE2, utf8proc, xxHash
# and nlohmann/json pass. Debian's Abseil and Highway do not: the first comes as shared libraries (Debian 12's
# static ones are not position-independent, and are built with a string_view of their own), the second as a shared
# library only (and Debian 12 has 1.0.3). Both are therefore built here, with the flags of the tree, which also
# gives sanitizer builds an instrumented Abseil: its containers change their layout under AddressSanitizer.
include(FetchContent)
if(POLICY CMP0169)
  cmake_policy(SET CMP0169 OLD) # FetchContent_Populate is the only way to add a tree EXCLUDE_FROM_ALL before 3.28
endif()

option(ENGINE_SELF_CONTAINED "libengine.so holds its dependencies" ON)

if(DEFINED ENV{ENGINE_DEPS_DIR})
  set(engine_deps_dir "$ENV{ENGINE_DEPS_DIR}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(engine_deps_dir "$ENV{XDG_CACHE_HOME}/engine/deps")
else()
  set(engine_deps_dir "$ENV{HOME}/.cache/engine/deps")
endif()
set(ENGINE_DEPS_DIR "${engine_deps_dir}" CACHE PATH "source trees made by cmake/install_deps.sh")

set(CMAKE_POLICY_DEFAULT_CMP0063 NEW)
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
set(BUILD_SHARED_LIBS OFF)
set(BUILD_TESTING OFF)

# Makes ${name}_SOURCE_DIR and ${name}_BINARY_DIR known, without building anything. Folder: its place in ENGINE_DEPS_DIR.
macro(engine_source name folder url sha256)
  string(TOUPPER ${name} engine_upper)
  if(NOT FETCHCONTENT_SOURCE_DIR_${engine_upper} AND EXISTS "${ENGINE_DEPS_DIR}/${folder}/.stamp")
    set(FETCHCONTENT_SOURCE_DIR_${engine_upper} "${ENGINE_DEPS_DIR}/${folder}")
  endif()
  FetchContent_Declare(${name} URL "${url}" URL_HASH SHA256=${sha256})
  FetchContent_GetProperties(${name})
  if(NOT ${name}_POPULATED)
    FetchContent_Populate(${name})
  endif()
endmacro()

# Adds a source tree's own CMake without its install rules, and builds only what is used of it.
macro(engine_add_source name)
  add_subdirectory(${${name}_SOURCE_DIR} ${${name}_BINARY_DIR} EXCLUDE_FROM_ALL SYSTEM)
endmacro()

# Sets result to true if a shared library can be linked from this C++ code and these libraries alone.
function(engine_links_into_shared result code)
  if(NOT DEFINED ${result})
    file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/${result}.cc "${code}")
    try_compile(${result} ${CMAKE_BINARY_DIR}/CMakeFiles/${result} ${CMAKE_BINARY_DIR}/CMakeFiles/${result}.cc
      CMAKE_FLAGS "-DCMAKE_CXX_FLAGS=-fPIC" LINK_OPTIONS -shared -Wl,-z,text LINK_LIBRARIES ${ARGN}
      CXX_STANDARD 20)
    message(STATUS "${result}: ${${result}}")
  endif()
endfunction()

# Sets result to true if the package's target may be used: any kind, or only a static one that passes the link test.
function(engine_accepts result target code)
  set(${result} FALSE PARENT_SCOPE)
  if(NOT TARGET ${target})
    return()
  endif()
  if(ENGINE_SELF_CONTAINED)
    get_target_property(kind ${target} TYPE)
    if(NOT kind STREQUAL STATIC_LIBRARY)
      return()
    endif()
    engine_links_into_shared(ENGINE_LINKS_${result} "${code}" ${target})
    if(NOT ENGINE_LINKS_${result})
      return()
    endif()
  endif()
  set(${result} TRUE PARENT_SCOPE)
endfunction()

# Finds a C library by its header and name, in the form that ENGINE_SELF_CONTAINED asks for.
macro(engine_find_c_library name header library code)
  find_path(ENGINE_${name}_INCLUDE ${header})
  if(ENGINE_SELF_CONTAINED)
    find_library(ENGINE_${name}_LIBRARY lib${library}.a)
  else()
    find_library(ENGINE_${name}_LIBRARY ${library})
  endif()
  mark_as_advanced(ENGINE_${name}_INCLUDE ENGINE_${name}_LIBRARY)
  set(ENGINE_${name}_FOUND FALSE)
  if(NOT FETCHCONTENT_SOURCE_DIR_${name} AND ENGINE_${name}_INCLUDE AND ENGINE_${name}_LIBRARY)
    engine_links_into_shared(ENGINE_LINKS_${name} "${code}" ${ENGINE_${name}_LIBRARY})
    set(ENGINE_${name}_FOUND ${ENGINE_LINKS_${name}})
  endif()
endmacro()

# Abseil: status, strings, hash tables, span. Always from source: a system package that is found and then refused has
# already defined the targets that the tree defines.
set(ABSL_PROPAGATE_CXX_STD ON)
set(ABSL_ENABLE_INSTALL OFF)
engine_source(absl abseil https://github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.tar.gz
  f50e5ac311a81382da7fa75b97310e4b9006474f9560ac46f54a9967f07d4ae3)
engine_add_source(absl)

# Highway: its headers and target detection; its own CMake would add tests and more.
if(NOT FETCHCONTENT_SOURCE_DIR_HIGHWAY)
  find_package(hwy 1.2 QUIET CONFIG)
  engine_accepts(SYSTEM_HWY hwy::hwy "#include <hwy/targets.h>
    long long f() { return hwy::SupportedTargets(); }")
endif()
if(SYSTEM_HWY)
  add_library(engine_hwy INTERFACE)
  target_link_libraries(engine_hwy INTERFACE hwy::hwy)
else()
  engine_source(highway highway https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
  add_library(engine_hwy STATIC EXCLUDE_FROM_ALL ${highway_SOURCE_DIR}/hwy/targets.cc)
  # per_target.cc: target detection asks for the vector size on AArch64.
  foreach(source abort.cc per_target.cc)
    if(EXISTS ${highway_SOURCE_DIR}/hwy/${source})
      target_sources(engine_hwy PRIVATE ${highway_SOURCE_DIR}/hwy/${source})
    endif()
  endforeach()
  target_include_directories(engine_hwy SYSTEM PUBLIC ${highway_SOURCE_DIR})
  target_compile_definitions(engine_hwy PUBLIC HWY_STATIC_DEFINE)
endif()

# PCRE2, 8 bit. The pretokenizers do not use its JIT.
add_library(engine_pcre2 INTERFACE)
engine_find_c_library(PCRE2 pcre2.h pcre2-8 "#define PCRE2_CODE_UNIT_WIDTH 8
  #include <pcre2.h>
  pcre2_code* f() { return pcre2_compile(nullptr, 0, 0, nullptr, nullptr, nullptr); }")
if(ENGINE_PCRE2_FOUND)
  target_link_libraries(engine_pcre2 INTERFACE ${ENGINE_PCRE2_LIBRARY})
  target_include_directories(engine_pcre2 SYSTEM INTERFACE ${ENGINE_PCRE2_INCLUDE})
else()
  set(PCRE2_BUILD_PCRE2_8 ON)
  set(PCRE2_BUILD_PCRE2GREP OFF)
  set(PCRE2_BUILD_TESTS OFF)
  set(PCRE2_SUPPORT_UNICODE ON)
  set(PCRE2_SUPPORT_JIT OFF)
  set(PCRE2_STATIC_PIC ON)
  engine_source(pcre2 pcre2 https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz
    c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f)
  engine_add_source(pcre2)
  target_link_libraries(engine_pcre2 INTERFACE pcre2-8-static)
  target_include_directories(engine_pcre2 SYSTEM INTERFACE ${pcre2_BINARY_DIR})
endif()

# utf8proc: normalisation and character classes.
add_library(engine_utf8proc INTERFACE)
engine_find_c_library(UTF8PROC utf8proc.h utf8proc "#include <utf8proc.h>
  int f() { return utf8proc_category(65); }")
if(ENGINE_UTF8PROC_FOUND)
  target_link_libraries(engine_utf8proc INTERFACE ${ENGINE_UTF8PROC_LIBRARY})
  target_include_directories(engine_utf8proc SYSTEM INTERFACE ${ENGINE_UTF8PROC_INCLUDE})
else()
  engine_source(utf8proc utf8proc https://github.com/JuliaStrings/utf8proc/archive/refs/tags/v2.8.0.tar.gz
    a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc)
  add_library(engine_utf8proc_source STATIC EXCLUDE_FROM_ALL ${utf8proc_SOURCE_DIR}/utf8proc.c)
  target_link_libraries(engine_utf8proc INTERFACE engine_utf8proc_source)
  target_include_directories(engine_utf8proc SYSTEM INTERFACE ${utf8proc_SOURCE_DIR})
endif()
target_compile_definitions(engine_utf8proc INTERFACE UTF8PROC_STATIC)

# xxHash: used as a header (XXH_INLINE_ALL).
add_library(engine_xxhash INTERFACE)
find_path(ENGINE_XXHASH_INCLUDE xxhash.h)
if(FETCHCONTENT_SOURCE_DIR_XXHASH OR NOT ENGINE_XXHASH_INCLUDE)
  engine_source(xxhash xxhash https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.1.tar.gz
    3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c)
  target_include_directories(engine_xxhash SYSTEM INTERFACE ${xxhash_SOURCE_DIR})
else()
  target_include_directories(engine_xxhash SYSTEM INTERFACE ${ENGINE_XXHASH_INCLUDE})
endif()

# nlohmann/json: headers.
if(NOT FETCHCONTENT_SOURCE_DIR_JSON)
  find_package(nlohmann_json 3.11 QUIET CONFIG)
endif()
if(NOT TARGET nlohmann_json::nlohmann_json)
  engine_source(json json https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
    d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273)
  add_library(engine_json INTERFACE)
  add_library(nlohmann_json::nlohmann_json ALIAS engine_json)
  target_include_directories(engine_json SYSTEM INTERFACE ${json_SOURCE_DIR}/single_include)
endif()

find_package(Threads REQUIRED)

# Catch2, for the tests. Its small files are compiled in a few large units.
if(ENGINE_BUILD_TESTS)
  if(NOT FETCHCONTENT_SOURCE_DIR_CATCH2)
    find_package(Catch2 3.4 QUIET CONFIG)
  endif()
  if(NOT TARGET Catch2::Catch2WithMain)
    engine_source(catch2 catch2 https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
      c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c)
    engine_add_source(catch2)
    set_target_properties(Catch2 PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    list(APPEND CMAKE_MODULE_PATH ${catch2_SOURCE_DIR}/extras)
  endif()
endif()
