// Defaults of every profile in the guest; what a policy can say is in /etc/firefox/policies instead.

// Nothing is fetched that no page and no person asked for.
pref("services.settings.server", "data:,#remote-settings-dummy/v1");
pref("app.normandy.enabled", false);
pref("app.shield.optoutstudies.enabled", false);
pref("browser.region.network.url", "");
pref("browser.region.update.enabled", false);
pref("browser.safebrowsing.downloads.remote.enabled", false);
pref("browser.safebrowsing.malware.enabled", false);
pref("browser.safebrowsing.phishing.enabled", false);
pref("browser.search.update", false);
pref("captivedetect.canonicalURL", "");
pref("dom.push.connection.enabled", false);
pref("extensions.getAddons.cache.enabled", false);
pref("extensions.systemAddon.update.enabled", false);
pref("geo.provider.network.url", "");
pref("media.gmp-manager.updateEnabled", false);
pref("messaging-system.rsexperimentloader.enabled", false);
pref("network.captive-portal-service.enabled", false);
pref("network.connectivity-service.enabled", false);
pref("network.dns.disablePrefetch", true);
pref("network.http.speculative-parallel-limit", 0);
pref("nimbus.rollouts.enabled", false);
pref("security.remote_settings.crlite_filters.enabled", false);
pref("security.remote_settings.intermediates.enabled", false);
pref("toolkit.telemetry.server", "");
// The URL asked for is the URL opened: no try at https first.
pref("dom.security.https_first", false);
pref("dom.security.https_first_schemeless", false);
pref("browser.fixup.alternate.enabled", false);

// Nothing asks, welcomes, or comes back from an earlier life.
pref("browser.aboutConfig.showWarning", false);
pref("browser.aboutwelcome.enabled", false);
pref("browser.messaging-system.whatsNewPanel.enabled", false);
pref("browser.preonboarding.enabled", false);
pref("browser.sessionstore.resume_from_crash", false);
pref("browser.startup.couldRestoreSession.count", -1);
pref("browser.startup.homepage_override.mstone", "ignore");
pref("browser.startup.upgradeDialog.enabled", false);
pref("browser.tabs.firefox-view", false);
pref("browser.tabs.warnOnClose", false);
pref("browser.warnOnQuit", false);
pref("datareporting.policy.dataSubmissionEnabled", false);
pref("datareporting.policy.dataSubmissionPolicyBypassNotification", true);
pref("toolkit.startup.max_resumed_crashes", -1);
pref("toolkit.telemetry.reportingpolicy.firstRun", false);

// The screen rests when the page does.
pref("browser.tabs.hoverPreview.enabled", false);
pref("general.smoothScroll", false);
pref("toolkit.cosmeticAnimations.enabled", false);
pref("ui.caretBlinkTime", 0);
pref("ui.prefersReducedMotion", 1);
pref("ui.tooltip.delay_ms", 1000);
pref("full-screen-api.transition-duration.enter", "0 0");
pref("full-screen-api.transition-duration.leave", "0 0");
pref("full-screen-api.warning.timeout", 0);

// One notch of the wheel is 48 CSS pixels on both axes, whatever is below the pointer.
pref("mousewheel.system_scroll_override.enabled", false);
pref("mousewheel.min_line_scroll_amount", 40);
pref("mousewheel.default.delta_multiplier_x", 120);
pref("mousewheel.default.delta_multiplier_y", 40);

// A small machine without a graphics card: paint in software, few processes, nothing on "disk".
pref("browser.cache.disk.enable", false);
pref("dom.ipc.processCount", 2);
pref("dom.ipc.processPrelaunch.enabled", false);
pref("gfx.webrender.software", true);
pref("layers.acceleration.disabled", true);
