#!/usr/bin/env bash
# Unpacks two more Vulkan drivers for CPUs into a folder, without installing them, and prints how to use
# each: SwiftShader (of Debian's chromium) and a newer Mesa (of Debian 12's backports). Debian 12 only.
#
#     scripts/more_drivers.sh out/drivers
#     eval "$(scripts/more_drivers.sh out/drivers | grep swiftshader)" && dressi doctor --all
set -euo pipefail

FOLDER=$(realpath -m "${1:?a folder to unpack into}")
LISTS="$FOLDER/lists"
MESA="$FOLDER/mesa/usr/lib/x86_64-linux-gnu"

say() { printf 'more_drivers: %s\n' "$*" >&2; }

# The mirror that this machine uses already, with backports beside it.
apt() {
    "$1" -q -oDir::Etc::SourceList="$FOLDER/sources.list" -oDir::Etc::SourceParts=/dev/null \
        -oDir::State::Lists="$LISTS" -oDir::Cache::pkgcache="$FOLDER/pkg.bin" \
        -oDir::Cache::srcpkgcache="$FOLDER/src.bin" "${@:2}" >&2
}

unpack() { # folder package[/release]
    local name=${2%%/*}
    mkdir -p "$FOLDER/debs" "$1"
    (cd "$FOLDER/debs" && rm -f "$name"_*.deb && apt apt-get download "$2" && dpkg -x "$name"_*.deb "$1")
}

[ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ] || { say "needs Debian 12"; exit 1; }
mkdir -p "$LISTS/partial"
MIRROR=$(apt-cache policy base-files | awk '$2 ~ /^http/ && $3 ~ /^bookworm\// {print $2; exit}')
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
printf 'deb [signed-by=%s] %s %s main\n' "$KEYS" "$MIRROR" bookworm "$KEYS" "$MIRROR" bookworm-backports \
    >"$FOLDER/sources.list"
apt apt-get update

unpack "$FOLDER/chromium" chromium
unpack "$FOLDER/chromium" chromium-common
for package in mesa-vulkan-drivers libdrm2 libdrm-amdgpu1; do
    unpack "$FOLDER/mesa" "$package/bookworm-backports"
done
sed "s#\"library_path\": \".*libvulkan_lvp#\"library_path\": \"$MESA/libvulkan_lvp#" \
    "$FOLDER"/mesa/usr/share/vulkan/icd.d/lvp_icd*.json >"$FOLDER/lvp_icd.json"

echo "export VK_DRIVER_FILES=$FOLDER/chromium/usr/lib/chromium/vk_swiftshader_icd.json  # swiftshader"
echo "export LD_LIBRARY_PATH=$MESA VK_DRIVER_FILES=$FOLDER/lvp_icd.json  # mesa"
